//! Messages that were sent and are not confirmed, in order, for a session that may be resumed. Plain data without IO.
//!
//! Owner: the state of a channel, under its lock. It is bounded: no more messages are unconfirmed than either end has slots.
//! The memory of a message from a buffer is with the device until the Send completes, and here from then on; a large one is
//! registered, in the state. When a connection is lost, all of it comes back here.

use std::collections::VecDeque;

use itapi::Buffer;

use crate::wire::HEADER;

/// A message that is not confirmed.
pub(crate) enum Item {
    /// So many octets with the header, which were copied.
    Copied(usize),
    /// In a buffer that the device has.
    Posted,
    /// In a buffer, behind room for the header.
    Whole(Buffer),
    /// The peer reads it from registered memory.
    Registered(usize),
    /// Its first octets are to be registered.
    Large(Vec<u8>, usize),
    /// No message follows.
    End,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Kept {
    items: VecDeque<Item>,
    /// Octets of those that were copied, from `first` on.
    copied: Vec<u8>,
    first: usize,
    /// Before this item none is [`Item::Posted`].
    returned: usize,
    /// Buffers that the device has, and whose messages are confirmed.
    confirmed: u32,
    /// Until it has the value of `items.len()`: the next item to be sent again, and the octets of copied ones before it.
    again: Option<(usize, usize)>,
    /// So many at the end were never sent.
    unsent: usize,
}

impl Kept {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Keeps a message that is about to be sent.
    #[inline]
    pub(crate) fn push(&mut self, item: Item) {
        self.items.push_back(item);
    }

    /// Keeps a copy of a message, and returns it: it is about to be sent.
    #[inline]
    pub(crate) fn copy(&mut self, header: &[u8; HEADER], octets: &[u8]) -> &[u8] {
        let at = self.copied.len();
        self.copied.reserve(HEADER + octets.len());
        self.copied.extend_from_slice(header);
        self.copied.extend_from_slice(octets);
        self.items.push_back(Item::Copied(HEADER + octets.len()));
        &self.copied[at..]
    }

    /// The last message is not sent now, but behind those that are sent again.
    pub(crate) fn is_later(&mut self) {
        self.unsent += 1;
    }

    /// How many were sent, and may have arrived.
    pub(crate) fn sent(&self) -> usize {
        self.items.len() - self.unsent
    }

    /// The device returns a buffer; they come in the order of their messages. Returns it if its message is confirmed.
    #[inline]
    pub(crate) fn put(&mut self, buffer: Buffer) -> Option<Buffer> {
        if self.confirmed > 0 {
            self.confirmed -= 1;
            return Some(buffer);
        }
        while let Some(item) = self.items.get_mut(self.returned) {
            self.returned += 1;
            if matches!(item, Item::Posted) {
                *item = Item::Whole(buffer);
                return None;
            }
        }
        Some(buffer)
    }

    /// The oldest messages, so many, are confirmed. `free`: takes the memory of those that the device does not have.
    pub(crate) fn confirm(&mut self, messages: usize, mut free: impl FnMut(Item)) {
        let (mut octets, mut count) = (0, 0);
        while count < messages
            && let Some(item) = self.items.pop_front()
        {
            count += 1;
            match item {
                Item::Copied(len) => octets += len,
                Item::Posted => self.confirmed += 1,
                Item::Whole(_) | Item::Large(..) => free(item),
                Item::Registered(_) | Item::End => {}
            }
        }
        self.first += octets;
        // Seldom, and never more than were confirmed since.
        if 2 * self.first >= self.copied.len() {
            self.copied.drain(..self.first);
            self.first = 0;
        }
        self.unsent = self.unsent.min(self.items.len());
        self.returned = self.returned.saturating_sub(count);
        if let Some((at, before)) = &mut self.again {
            (*at, *before) = (at.saturating_sub(count), before.saturating_sub(octets));
        }
    }

    /// How many are registered.
    pub(crate) fn registered(&self) -> usize {
        self.items.iter().filter(|item| matches!(item, Item::Registered(_))).count()
    }

    /// How many are, or are to be.
    pub(crate) fn large(&self) -> usize {
        let is = |item: &&Item| matches!(item, Item::Registered(_) | Item::Large(..));
        self.items.iter().filter(is).count()
    }

    /// The device has none any more. `large` returns the memory of the registered ones, oldest first. False: the memory of a
    /// message is lost.
    pub(crate) fn came_back(&mut self, mut large: impl FnMut() -> Option<Vec<u8>>) -> bool {
        (self.returned, self.confirmed, self.again) = (0, 0, None);
        for item in &mut self.items {
            match item {
                Item::Posted => return false,
                Item::Registered(len) => match large() {
                    Some(octets) => *item = Item::Large(octets, *len),
                    None => return false,
                },
                _ => {}
            }
        }
        true
    }

    /// Copies what is in buffers of a device that is not used any more.
    pub(crate) fn leave_buffers(&mut self) {
        let (mut copied, mut rest) = (Vec::new(), &self.copied[self.first..]);
        for item in &mut self.items {
            match item {
                Item::Copied(len) => {
                    let (octets, others) = rest.split_at(*len);
                    copied.extend_from_slice(octets);
                    rest = others;
                }
                Item::Whole(buffer) => {
                    copied.extend_from_slice(buffer);
                    *item = Item::Copied(buffer.len());
                }
                _ => {}
            }
        }
        (self.copied, self.first) = (copied, 0);
    }

    /// All are to be sent again.
    pub(crate) fn begin_again(&mut self) {
        self.again = (!self.items.is_empty()).then_some((0, 0));
    }

    /// Messages have to be sent again before others.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.again.is_some()
    }

    /// The next that is to be sent again.
    pub(crate) fn next_again(&mut self) -> Option<&mut Item> {
        self.items.get_mut(self.again?.0)
    }

    /// The `len` octets of the next, which was copied, with its former header.
    pub(crate) fn copied_again(&mut self, len: usize) -> &mut [u8] {
        let at = self.first + self.again.map_or(0, |again| again.1);
        &mut self.copied[at..at + len]
    }

    /// The next, which was copied, is sent from a buffer that the device gets.
    pub(crate) fn post_again(&mut self) {
        let Some((at, before)) = self.again else { return };
        if let Some(item) = self.items.get_mut(at)
            && let Item::Copied(len) = *item
        {
            let at = self.first + before;
            self.copied.drain(at..at + len);
            *item = Item::Posted;
        }
    }

    /// The next was sent.
    pub(crate) fn was_sent_again(&mut self) {
        let Some((at, octets)) = &mut self.again else { return };
        if let Some(Item::Copied(len)) = self.items.get(*at) {
            *octets += len;
        }
        *at += 1;
        self.unsent = self.unsent.min(self.items.len().saturating_sub(*at));
        if *at >= self.items.len() {
            self.again = None;
        }
    }
}
