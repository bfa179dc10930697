//! One message of each kind, as its encoder writes it: where mutations begin.

use crate::wire::{shared, tests};

fn input(who: u8, message: &[u8]) -> Vec<u8> {
    [&[who], message].concat()
}

pub fn control() -> Vec<Vec<u8>> {
    let requests = tests::each_request();
    let events = tests::each_event();
    let (orders, reports) = (tests::each_order(), tests::each_report());
    let requests = requests.iter().map(|each| input(0, &each.encode()));
    let events = events.iter().map(|each| input(1, &each.encode()));
    let orders = orders.iter().map(|each| input(2, &each.encode()));
    let reports = reports.iter().map(|each| input(3, &each.encode()));
    requests
        .chain(events)
        .chain(orders)
        .chain(reports)
        .collect()
}

pub fn lender() -> Vec<Vec<u8>> {
    let (requests, replies) = (shared::tests::requests(), shared::tests::replies());
    let requests = requests.iter().map(|each| input(0, &each.encode()));
    let replies = replies.iter().map(|each| input(1, &each.encode()));
    requests.chain(replies).collect()
}
