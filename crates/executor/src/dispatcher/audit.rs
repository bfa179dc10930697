//! The audit log: who submitted, cancelled, retried and ordered what, a JSON object a line.
//!
//! A thread of its own writes, so that no turn of the dispatcher waits for the disk; it starts with the first line, so
//! that a server without a gateway has none. What cannot be written, or comes faster than the disk takes it, is counted,
//! and a line says how many are missing. Lines survive the death of the server, not the loss of power: nothing waits for
//! a sync.
//!
//! At `audit_bytes_max` the file becomes `audit.log.1`, in place of the one of before.

use std::borrow::Cow;
use std::fs::{File, OpenOptions, rename};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::OFlags;

use crate::dispatcher::limit::{AUDIT_BYTES_MAX, AUDIT_LINES_MAX};
use crate::id::RequestId;
use crate::request::Millis;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLine {
    pub at: Millis,
    /// "submit", "cancel", "retry", or the method of an order.
    pub act: Cow<'static, str>,
    /// The holder of a token, or the user of a Unix socket.
    pub by: Arc<str>,
    pub id: Option<RequestId>,
    /// The name of the request, or what else was ordered about.
    pub object: Arc<str>,
}

impl AuditLine {
    fn to_json(&self) -> String {
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let id = self.id.map_or_else(
            || "null".to_owned(),
            |id| serde_json::Value::from(id.to_string()).to_string(),
        );
        format!(
            "{{\"at_ms\":{},\"act\":{},\"by\":{},\"id\":{id},\"object\":{}}}\n",
            self.at,
            text(&self.act),
            text(&self.by),
            text(&self.object)
        )
    }
}

/// The log of one server.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    writer: Option<Writer>,
    /// Lines that found no room in the queue since the last one that did.
    lost: u64,
    trouble: Arc<Mutex<Option<String>>>,
}

#[derive(Debug)]
struct Writer {
    lines: SyncSender<AuditLine>,
    thread: JoinHandle<()>,
}

impl AuditLog {
    /// The log in a state directory; nothing is opened.
    pub fn new(state: &Path) -> Self {
        Self {
            path: state.join("audit.log"),
            writer: None,
            lost: 0,
            trouble: Arc::default(),
        }
    }

    /// Queue a line; where the queue is full, count it.
    pub fn write(&mut self, line: AuditLine) {
        if self.writer.is_none() {
            self.writer = self.start();
        }
        let Some(writer) = &self.writer else {
            self.lost += 1;
            return;
        };
        if self.lost > 0 {
            let missing = missing(self.lost, line.at);
            if writer.lines.try_send(missing).is_ok() {
                self.lost = 0;
            }
        }
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            writer.lines.try_send(line)
        {
            self.lost += 1;
        }
    }

    /// Why lines are missing, once for each time that writing failed.
    pub fn take_warning(&mut self) -> Option<String> {
        self.writer.as_ref()?;
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.take()
    }

    fn start(&self) -> Option<Writer> {
        let (lines, queue) = sync_channel(AUDIT_LINES_MAX);
        let (path, trouble) = (self.path.clone(), Arc::clone(&self.trouble));
        let thread = std::thread::Builder::new()
            .name("forebay-audit".into())
            .spawn(move || Output::new(path, trouble).run(&queue))
            .ok()?;
        Some(Writer { lines, thread })
    }
}

impl Drop for AuditLog {
    /// Waits until what is queued is written.
    fn drop(&mut self) {
        if let Some(Writer { lines, thread }) = self.writer.take() {
            drop(lines);
            drop(thread.join());
        }
    }
}

/// What the thread owns.
struct Output {
    path: PathBuf,
    file: Option<(File, u64)>,
    lost: u64,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Output {
    fn new(path: PathBuf, trouble: Arc<Mutex<Option<String>>>) -> Self {
        Self {
            path,
            file: None,
            lost: 0,
            trouble,
        }
    }

    /// Write until the log is closed: all that has come meanwhile at once.
    fn run(mut self, queue: &Receiver<AuditLine>) {
        while let Ok(first) = queue.recv() {
            let mut text = String::new();
            if self.lost > 0 {
                text += &missing(self.lost, first.at).to_json();
            }
            let mut count = 0;
            for line in std::iter::once(first).chain(queue.try_iter().take(AUDIT_LINES_MAX)) {
                text += &line.to_json();
                count += 1;
            }
            match self.append(text.as_bytes()) {
                Ok(()) => self.lost = 0,
                Err(error) => self.fail(count, &error),
            }
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(open(&self.path)?);
        }
        let full = |size: u64| size > 0 && size + bytes.len() as u64 > AUDIT_BYTES_MAX;
        if self.file.as_ref().is_some_and(|(_, size)| full(*size)) {
            rename(&self.path, self.path.with_extension("log.1"))?;
            self.file = Some(open(&self.path)?);
        }
        if let Some((file, size)) = &mut self.file {
            file.write_all(bytes)?;
            *size += bytes.len() as u64;
        }
        Ok(())
    }

    /// The file is opened again for the next line: it may have been removed, or its disk be full for now.
    fn fail(&mut self, count: u64, error: &io::Error) {
        self.file = None;
        if self.lost == 0 {
            let path = self.path.display();
            let why = format!("{path}: {error}; lines of the audit log are missing");
            let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            *trouble = Some(why);
        }
        self.lost += count;
    }
}

/// The line that stands for those that are missing.
fn missing(count: u64, at: Millis) -> AuditLine {
    AuditLine {
        at,
        act: "missing".into(),
        by: "".into(),
        id: None,
        object: format!("{count} lines").into(),
    }
}

/// The file, with its size; a link is not followed, and nobody else may read it.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(no_follow)
        .open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn line(number: u64) -> AuditLine {
        AuditLine {
            at: number,
            act: "submit".into(),
            by: "a\"nn".into(),
            id: Some(RequestId(number)),
            object: "tune".into(),
        }
    }

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let unique = format!("forebay-audit-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(unique);
            drop(fs::remove_dir_all(&path));
            fs::create_dir(&path).expect("a directory");
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn a_line_is_a_json_object_for_this_user_alone() {
        let directory = Directory::new("line");
        let mut log = AuditLog::new(&directory.0);
        assert!(!directory.0.join("audit.log").exists(), "nothing was said");
        log.write(line(7));
        drop(log);
        let path = directory.0.join("audit.log");
        let text = fs::read_to_string(&path).expect("the log");
        let id = RequestId(7);
        let expected =
            format!(r#"{{"at_ms":7,"act":"submit","by":"a\"nn","id":"{id}","object":"tune"}}"#);
        assert_eq!(text, expected + "\n");
        let mode = fs::metadata(&path).expect("its mode").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_full_file_makes_room_and_one_is_kept() {
        let directory = Directory::new("full");
        let path = directory.0.join("audit.log");
        for round in 1..=3 {
            let most = usize::try_from(AUDIT_BYTES_MAX).expect("a size");
            fs::write(&path, vec![b'0' + round; most]).expect("a full log");
            let mut log = AuditLog::new(&directory.0);
            log.write(line(u64::from(round)));
            drop(log);
            let old = fs::read(directory.0.join("audit.log.1")).expect("the one of before");
            assert_eq!((old.len(), old[0]), (most, b'0' + round));
            assert_eq!(
                fs::read_to_string(&path).expect("the log").lines().count(),
                1
            );
        }
        assert_eq!(fs::read_dir(&directory.0).expect("a directory").count(), 2);
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_told_once() {
        let directory = Directory::new("lost");
        let path = directory.0.join("audit.log");
        fs::create_dir(&path).expect("in its place");
        let mut log = AuditLog::new(&directory.0);
        log.write(line(1));
        let warning = loop {
            if let Some(warning) = log.take_warning() {
                break warning;
            }
            std::thread::yield_now();
        };
        assert!(warning.contains("audit.log"), "{warning}");
        assert_eq!(log.take_warning(), None);
        fs::remove_dir(&path).expect("out of its place");
        log.write(line(2));
        drop(log);
        let text = fs::read_to_string(&path).expect("the log");
        let first = text.lines().next().expect("a line");
        assert!(
            first.contains("\"missing\"") && first.contains("1 lines"),
            "{first}"
        );
        assert_eq!(text.lines().count(), 2);
    }
}
