//! A connected queue pair as the engine sees it. No state.

use std::sync::Arc;

use roce_proto::wire::packet::Packet;

use super::RoceQp;
use crate::engine::{Arrived, Served, Socket};

impl Served for RoceQp {
    fn receive(
        &self,
        now: u64,
        socket: &Arc<Socket>,
        arrived: &Arrived<'_>,
        packet: &Packet<'_>,
    ) -> Option<u32> {
        RoceQp::receive(self, now, socket, arrived, packet)
    }

    fn on_timer(&self, at: u64, now: u64) {
        RoceQp::on_timer(self, at, now);
    }

    fn settle(&self, may_keep: bool) -> bool {
        let keeps = self.reply(may_keep);
        RoceQp::settle(self);
        keeps
    }

    fn end(&self) {
        RoceQp::end(self);
    }
}
