//! What streams of items send.

use crate::dispatcher::clients::request_events::NextItem;
use crate::dispatcher::clients::streams::StreamKind;
use crate::error::{Error, Refusal};
use crate::id::RequestId;
use crate::items::{Items, ItemsReader, NextItems};
use crate::message;

/// A stream of the items behind a number.
pub fn items_behind(epoch: Option<u64>, after: u64, follow: bool) -> StreamKind {
    let reader = ItemsReader::new(epoch, after);
    StreamKind::Items { reader, follow }
}

/// The next items of a request; `over`: they cannot be read, which the last message says.
pub fn next_items(
    items: &Items,
    id: RequestId,
    reader: &mut ItemsReader,
    over: &mut bool,
) -> NextItem {
    match reader.next(items, id) {
        Ok(NextItems::Piece(piece)) => NextItem::Message(message::items(piece)),
        Ok(NextItems::Later) => NextItem::Later,
        Ok(NextItems::Nothing) => NextItem::Nothing,
        Err(error) => {
            *over = true;
            NextItem::Item(message::refused(&unreadable(items, id, &error)))
        }
    }
}

fn unreadable(items: &Items, id: RequestId, error: &Error) -> Refusal {
    Refusal {
        code: "store",
        message: format!("the items of request {id} cannot be read: {error}"),
        object: id.to_string(),
        limit: String::new(),
        value: items.path(id).display().to_string(),
        next: "look at the disk; run the request again".into(),
    }
}
