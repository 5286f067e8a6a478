//! The syntax of `[providers]`: keys of the registry, and a table for each provider that has its own
//! keys. Plain data.

use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use vp_hooks::Wrapper;

use super::{Own, Providers};

/// Wrappers as text.
struct Wrappers(Vec<Wrapper>);

impl<'de> Deserialize<'de> for Wrappers {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(input)?;
        let all: Result<_, _> = texts.iter().map(|text| text.parse()).collect();
        all.map(Self).map_err(D::Error::custom)
    }
}

/// The value of a provider's own key, as it is passed on.
struct Setting(String);

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        use toml::Value::{Boolean, Float, Integer, String};
        match toml::Value::deserialize(input)? {
            String(text) => Ok(Self(text)),
            value @ (Integer(_) | Float(_) | Boolean(_)) => Ok(Self(value.to_string())),
            _ => Err(D::Error::custom("a provider's own key is text, a number or a truth value")),
        }
    }
}

impl<'de> Deserialize<'de> for Providers {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(Section)
    }
}

struct Section;

impl<'de> Visitor<'de> for Section {
    type Value = Providers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the table of providers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Providers, A::Error> {
        let mut all = Providers::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "disabled" => all.disabled = map.next_value()?,
                "order" => all.order = map.next_value()?,
                "libraries" => all.libraries = map.next_value()?,
                "wrap" => all.wrap = map.next_value::<Wrappers>()?.0,
                _ => {
                    let own = map.next_value()?;
                    all.own.insert(key, own);
                }
            }
        }
        Ok(all)
    }
}

impl<'de> Deserialize<'de> for Own {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(ProviderTableVisitor)
    }
}

struct ProviderTableVisitor;

impl<'de> Visitor<'de> for ProviderTableVisitor {
    type Value = Own;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "`disabled`, `order`, `libraries`, `wrap`, or a provider's table under its name",
        )
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Own, A::Error> {
        let mut own = Own::default();
        while let Some(key) = map.next_key::<String>()? {
            if key == "wrap" {
                own.wrap = Some(map.next_value::<Wrappers>()?.0);
            } else {
                let value = map.next_value::<Setting>()?;
                own.settings.push((key, value.0));
            }
        }
        own.settings.sort();
        Ok(own)
    }
}
