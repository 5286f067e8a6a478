//! What `warpline top` shows: two snapshots and the order of their rows ([`Shown`]), the selected row ([`Cursor`]), and
//! the open page. The main thread owns it.

use std::collections::HashSet;
use std::ops::Range;

use state_page::read::QueuePair;

use super::args::TopArgs;
use super::page::Page;
use super::rows::{Order, Row, rows};
use crate::stat::id::Id;
use crate::stat::pages::{Seen, Snapshot};

pub(super) struct View {
    pub(super) shown: Shown,
    pub(super) cursor: Cursor,
    /// Keys go to the filter.
    pub(super) is_typing: bool,
    pub(super) page: Option<Page>,
}

/// What the rows are made of.
pub(super) struct Shown {
    before: Snapshot,
    pub(super) snapshot: Snapshot,
    /// Processes that a signal has stopped.
    pub(super) stopped: HashSet<u32>,
    pub(super) order: Order,
}

/// The selected row, and the part of the rows that is on the screen.
pub(super) struct Cursor {
    selected: Option<Id>,
    /// The selected row, also if it is gone.
    index: usize,
    /// Rows above the screen.
    offset: usize,
    /// Rows on the screen.
    pub(super) height: usize,
}

impl View {
    pub(super) fn new(snapshot: Snapshot, args: &TopArgs) -> Self {
        let (sort, filter) = (args.sort, args.filter.clone());
        let shown = Shown {
            before: snapshot.clone(),
            stopped: stopped(&snapshot),
            snapshot,
            order: Order { sort, reverse: false, filter, folded: HashSet::new() },
        };
        let cursor = Cursor { selected: None, index: 0, offset: 0, height: 1 };
        Self { shown, cursor, is_typing: false, page: None }
    }

    /// Takes a new snapshot.
    pub(super) fn take(&mut self, snapshot: Snapshot) {
        let shown = &mut self.shown;
        shown.before = std::mem::replace(&mut shown.snapshot, snapshot);
        shown.stopped = stopped(&shown.snapshot);
        if let Some(page) = &mut self.page {
            page.update(&shown.before, &shown.snapshot);
        }
    }

    /// The connection that is to be explained.
    pub(super) fn question(&mut self) -> Option<(Id, Seen, QueuePair)> {
        self.page.as_mut()?.question()
    }

    pub(super) fn explained(&mut self, id: &Id, text: String) {
        // The page may have been closed.
        if let Some(page) = self.page.as_mut().filter(|page| page.id == *id) {
            page.explained(text);
        }
    }

    /// Moves the selection, or the lines of the page.
    pub(super) fn step(&mut self, by: isize) {
        match &mut self.page {
            Some(page) => page.scroll = page.scroll.saturating_add_signed(by),
            None => self.cursor.step(&self.shown.rows(), by),
        }
    }

    /// Opens the page of the selected connection; folds or unfolds a process.
    pub(super) fn open(&mut self) {
        let rows = self.shown.rows();
        let is_selected = |row: &&Row<'_>| Some(row.id()) == self.cursor.selected;
        match rows.iter().find(is_selected) {
            None => {}
            Some(Row::Connection(of)) => self.page = Some(Page::new(of.seen, of.qp, of.rate)),
            Some(row @ Row::Process(_)) => {
                let id = row.id();
                let folded = &mut self.shown.order.folded;
                if !folded.remove(&id) {
                    folded.insert(id);
                }
            }
        }
    }
}

impl Shown {
    /// All rows.
    pub(super) fn rows(&self) -> Vec<Row<'_>> {
        rows(&self.before, &self.snapshot, &self.order)
    }
}

impl Cursor {
    /// The rows that the screen shows, with the place of the selected one among these. The selected row keeps its
    /// selection where it moves; if it is gone, the one in its place has it.
    pub(super) fn visible(&mut self, rows: &[Row<'_>], height: usize) -> (Range<usize>, usize) {
        let found = rows.iter().position(|row| Some(row.id()) == self.selected);
        self.index = found.unwrap_or(self.index).min(rows.len().saturating_sub(1));
        self.selected = rows.get(self.index).map(Row::id);
        self.height = height.max(1);
        let highest = (self.index + 1).saturating_sub(self.height);
        self.offset = self.offset.clamp(highest, self.index.max(highest));
        // No empty lines below the last row.
        self.offset = self.offset.min(rows.len().saturating_sub(self.height));
        let end = (self.offset + self.height).min(rows.len());
        (self.offset..end, self.index - self.offset)
    }

    fn step(&mut self, rows: &[Row<'_>], by: isize) {
        self.index = self.index.saturating_add_signed(by);
        self.selected = rows.get(self.index).or(rows.last()).map(Row::id);
    }
}

/// The processes that are stopped (proc(5), state T or t).
fn stopped(snapshot: &Snapshot) -> HashSet<u32> {
    let ids = snapshot.processes.iter().map(|seen| seen.page.process.pid);
    ids.filter(|pid| kal_os::is_stopped(*pid as i32)).collect()
}
