//! What a peer can infer from the STags that it was granted about those that it was not.

use std::sync::Arc;

use ual::vp_api::Access;
use ual::{Config, Lmr, LmrInit, Region, Ual};

const ADAPTERS: u64 = 32;

/// How many STags a peer tries before it finds one of `hidden`, if it goes from those it `has` in
/// several orders at once: the nearest numbers first; those first that differ in few of the low
/// bits, or of the high ones; the nearest indices with a key that it has seen, or any key.
fn guesses(has: &[u32], hidden: &[u32]) -> u64 {
    let pairs = || has.iter().flat_map(|has| hidden.iter().map(move |hidden| (*has, *hidden)));
    let low_bits = |a: u32, b: u32| 1 << (32 - (a ^ b).leading_zeros());
    let high_bits = |a: u32, b: u32| 1 << (32 - (a ^ b).trailing_zeros());
    let indices = |a: u32, b: u32| 2 * u64::from((a >> 8).abs_diff(b >> 8));
    let orders: [u64; 4] = [
        pairs().map(|(a, b)| 2 * u64::from(a.abs_diff(b))).min().unwrap(),
        pairs().map(|(a, b)| low_bits(a, b)).min().unwrap(),
        pairs().map(|(a, b)| high_bits(a, b)).min().unwrap(),
        pairs()
            .map(|(a, b)| if a as u8 == b as u8 { indices(a, b) } else { indices(a, b) << 8 })
            .min()
            .unwrap(),
    ];
    orders.into_iter().min().unwrap() * has.len() as u64
}

// [SEC-07]: from few grants or many, to few other regions or many.
#[test]
fn granted_keys_do_not_reveal_others() {
    let ual = Ual::with_config(Config::default());
    let memory = Region::new(64).unwrap();
    for (granted, hidden) in [(1, 1), (1, 16), (4, 4), (16, 1), (16, 16), (1, 63)] {
        let sum: u64 = (0..ADAPTERS)
            .map(|_| {
                let pz = ual.open_any().unwrap().create_pz().unwrap();
                let init = || LmrInit::new(memory.mem_range(), Access::LOCAL);
                let all: Vec<Arc<Lmr>> =
                    (0..granted + hidden).map(|_| pz.create_lmr(init()).unwrap()).collect();
                let stags: Vec<u32> = all.iter().map(|lmr| lmr.stag().0).collect();
                let (has, hidden) = stags.split_at(granted);
                guesses(has, hidden)
            })
            .sum();
        let mean = sum / ADAPTERS;
        println!("{granted} grants, {hidden} other regions: {mean} guesses");
        assert!(mean >= 1 << 22, "{granted} grants, {hidden} other regions: {mean} guesses");
    }
}

// [SEC-07]: the STag of a destroyed region is reused neither for the next region nor soon.
#[test]
fn old_grants_give_no_access_later() {
    const ROUNDS: usize = 200;
    let pz = Ual::with_config(Config::default()).open_any().unwrap().create_pz().unwrap();
    let memory = Region::new(64).unwrap();
    let init = || LmrInit::new(memory.mem_range(), Access::LOCAL);
    let mut seen = std::collections::HashSet::new();
    for round in 0..ROUNDS {
        let lmr = pz.create_lmr(init()).unwrap();
        assert!(seen.insert(lmr.stag()), "round {round}: {:?} came back", lmr.stag());
        lmr.close().unwrap();
    }
}
