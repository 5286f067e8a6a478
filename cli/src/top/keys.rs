//! What each key of `warpline top` does.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::view::View;

/// The keys of the list, for its last line.
pub(super) const LIST: &str =
    "q quit  Up/Down select  Enter open, fold  s sort  r reverse  / filter";
/// While the filter is typed.
pub(super) const FILTER: &str = "Enter keep  Esc clear";
/// Those of a connection's page.
pub(super) const PAGE: &str = "q quit  Esc back  Up/Down scroll";

/// What is to be done behind a key.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Then {
    Continue,
    Quit,
}

impl View {
    pub(super) fn key(&mut self, key: KeyEvent) -> Then {
        if key.kind == KeyEventKind::Release {
            return Then::Continue;
        }
        // The terminal passes Ctrl-C as a key.
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Then::Quit } else { Then::Continue };
        }
        if self.is_typing {
            self.type_filter(key.code);
            return Then::Continue;
        }
        let screen = isize::try_from(self.cursor.height).unwrap_or(isize::MAX);
        match key.code {
            KeyCode::Char('q') => return Then::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-screen),
            KeyCode::PageDown => self.step(screen),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left if self.page.is_some() => {
                self.page = None;
            }
            KeyCode::Esc => self.shown.order.filter.clear(),
            KeyCode::Enter | KeyCode::Right if self.page.is_none() => self.open(),
            KeyCode::Char('s') if self.page.is_none() => {
                self.shown.order.sort = self.shown.order.sort.next()
            }
            KeyCode::Char('r') if self.page.is_none() => self.shown.order.reverse ^= true,
            KeyCode::Char('/') if self.page.is_none() => self.is_typing = true,
            _ => {}
        }
        Then::Continue
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(letter) => self.shown.order.filter.push(letter),
            KeyCode::Backspace => drop(self.shown.order.filter.pop()),
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.shown.order.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
    }
}
