//! The audit log: who submitted, cancelled, retried and ordered what, a JSON object a line.
//!
//! A thread of its own writes, so that no turn of the dispatcher waits for the disk; it starts with the first line, so
//! that a server without a gateway has none. What cannot be written, or comes faster than the disk takes it, is counted,
//! and a line says how many are missing. Lines survive the death of the server, not the loss of power: nothing waits for
//! a sync.
//!
//! The file has whole lines alone: a full disk takes the beginning of a line, and a line that follows it would be joined
//! to it. What was cut is removed after a failed write, and once more where the file is opened.
//!
//! At `audit_bytes_max` the file becomes `audit.log.1`, in place of the one of before.

use std::borrow::Cow;
use std::fs::{File, OpenOptions, rename};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::dispatcher::limit::{AUDIT_BYTES_MAX, AUDIT_LINES_MAX};
use crate::id::RequestId;
use crate::private_file::{PrivateFileError, open_private};
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
    lost: Lost,
    trouble: Arc<Mutex<Option<String>>>,
}

/// Lines that are missing, and for which no line stands yet.
type Lost = Arc<AtomicU64>;

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
            lost: Lost::default(),
            trouble: Arc::default(),
        }
    }

    /// Queue a line; where the queue is full, count it.
    pub fn write(&mut self, line: AuditLine) {
        if self.writer.is_none() {
            self.writer = self.start();
        }
        let writer = self.writer.as_ref();
        if writer.is_none_or(|writer| writer.lines.try_send(line).is_err()) {
            self.lost.fetch_add(1, Relaxed);
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
        let (lost, trouble) = (Arc::clone(&self.lost), Arc::clone(&self.trouble));
        let output = Output::new(self.path.clone(), lost, trouble);
        let thread = std::thread::Builder::new()
            .name("forebay-audit".into())
            .spawn(move || output.run(&queue))
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
    file: Option<LogFile>,
    lost: Lost,
    /// The time of the newest line.
    at: Millis,
    is_failing: bool,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Output {
    fn new(path: PathBuf, lost: Lost, trouble: Arc<Mutex<Option<String>>>) -> Self {
        Self {
            path,
            file: None,
            lost,
            at: 0,
            is_failing: false,
            trouble,
        }
    }

    /// Write until the log is closed: all that has come meanwhile at once.
    fn run(mut self, queue: &Receiver<AuditLine>) {
        while let Ok(first) = queue.recv() {
            let more = queue.try_iter().take(AUDIT_LINES_MAX);
            let lines: Vec<_> = std::iter::once(first).chain(more).collect();
            self.at = lines.last().map_or(self.at, |line| line.at);
            self.write(&lines);
        }
        if self.lost.load(Relaxed) > 0 {
            self.write(&[]); // the disk may have room again
        }
    }

    fn write(&mut self, lines: &[AuditLine]) {
        let Err(error) = self.append(lines) else {
            self.is_failing = false;
            return;
        };
        self.lost.fetch_add(lines.len() as u64, Relaxed);
        if !std::mem::replace(&mut self.is_failing, true) {
            let path = self.path.display();
            let why = format!("{path}: {error}; lines of the audit log are missing");
            let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            *trouble = Some(why);
        }
    }

    /// Append all of these lines, behind one that stands for those that are missing, or none.
    ///
    /// After a failure the file is opened again: it may have been removed, or its disk be full for now.
    fn append(&mut self, lines: &[AuditLine]) -> Result<(), PrivateFileError> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.open()?,
        };
        let lost = self.lost.load(Relaxed);
        let told = (lost > 0).then(|| missing(lost, self.at));
        let text: String = told.iter().chain(lines).map(AuditLine::to_json).collect();
        if file.is_full_with(text.len()) {
            rename(&self.path, self.path.with_extension("log.1"))?;
            file = self.open()?;
        }
        file.append(text.as_bytes())?;
        self.lost.fetch_sub(lost, Relaxed);
        self.file = Some(file);
        Ok(())
    }

    fn open(&self) -> Result<LogFile, PrivateFileError> {
        let (file, is_cut) = LogFile::open(&self.path)?;
        self.lost.fetch_add(u64::from(is_cut), Relaxed);
        Ok(file)
    }
}

/// The file, which ends with a whole line.
struct LogFile {
    file: File,
    bytes: u64,
}

impl LogFile {
    /// Open it, and remove the beginning of a line at its end; whether there was one.
    fn open(path: &Path) -> Result<(Self, bool), PrivateFileError> {
        let mut options = OpenOptions::new();
        let (file, found) = open_private(path, options.create(true).read(true).append(true))?;
        let bytes = whole_lines(&file, found.len())?;
        let is_cut = bytes < found.len();
        if is_cut {
            file.set_len(bytes)?;
        }
        Ok((Self { file, bytes }, is_cut))
    }

    fn is_full_with(&self, more: usize) -> bool {
        self.bytes > 0 && self.bytes + more as u64 > AUDIT_BYTES_MAX
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(lines) {
            // Where this fails too, the file is mended when it is opened again.
            drop(self.file.set_len(self.bytes));
            return Err(error);
        }
        self.bytes += lines.len() as u64;
        Ok(())
    }
}

/// Bytes of a file up to the end of its last whole line.
fn whole_lines(file: &File, bytes: u64) -> io::Result<u64> {
    let mut part = [0; 4096];
    let mut end = bytes;
    while end > 0 {
        let start = end.saturating_sub(part.len() as u64);
        let length = usize::try_from(end - start).unwrap_or(part.len());
        file.read_exact_at(&mut part[..length], start)?;
        if let Some(at) = part[..length].iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
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
            let mut full = vec![b'0' + round; most];
            full[most - 1] = b'\n';
            fs::write(&path, full).expect("a full log");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("closed");
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
        let warning = warning_of(&mut log);
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

    /// What a log warns of, which its thread tells after a while.
    fn warning_of(log: &mut AuditLog) -> String {
        loop {
            if let Some(warning) = log.take_warning() {
                return warning;
            }
            std::thread::yield_now();
        }
    }

    /// The lines of a log, each of which must be an object, without their times.
    fn told(path: &Path) -> Vec<(String, String)> {
        let text = fs::read_to_string(path).expect("the log");
        assert!(text.ends_with('\n'), "{text}");
        let object = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).expect("a whole line");
            let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            (text("act"), text("object"))
        };
        text.lines().map(object).collect()
    }

    #[test]
    fn a_line_that_was_cut_is_removed_and_counted() {
        let directory = Directory::new("cut");
        let path = directory.0.join("audit.log");
        let whole = line(1).to_json();
        let submit = ("submit".to_owned(), "tune".to_owned());
        let missing = ("missing".to_owned(), "1 lines".to_owned());
        let longer = "x".repeat(10_000);
        for (before, cut) in [
            (whole.as_str(), "{\"at_ms\":2,\"act\":"),
            (&whole, &longer),
            ("", "{"),
        ] {
            fs::write(&path, format!("{before}{cut}")).expect("a log that was cut");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("closed");
            let mut log = AuditLog::new(&directory.0);
            log.write(line(3));
            drop(log);
            let mut expected = vec![submit.clone(); before.lines().count()];
            expected.extend([missing.clone(), submit.clone()]);
            assert_eq!(told(&path), expected);
        }
    }

    #[test]
    fn a_log_that_others_can_read_is_not_written() {
        let directory = Directory::new("open");
        let path = directory.0.join("audit.log");
        fs::write(&path, "").expect("a log");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("open to others");
        let mut log = AuditLog::new(&directory.0);
        log.write(line(1));
        let warning = warning_of(&mut log);
        assert!(warning.contains("other users can read"), "{warning}");
        drop(log);
        assert_eq!(fs::read(&path).expect("the log"), b"");
    }

    mod as_root {
        use std::process::Command;

        use super::*;

        #[test]
        #[ignore = "mounts a file system, which needs root: sudo make test"]
        fn a_full_disk_cuts_no_line_and_the_missing_are_counted() {
            let directory = Directory::new("disk");
            let mount = |arguments: &[&str]| {
                let mut command = Command::new(arguments[0]);
                let status = command.args(&arguments[1..]).arg(&directory.0).status();
                assert!(status.expect("a command").success(), "{arguments:?}");
            };
            mount(&["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs"]);
            let filler = directory.0.join("filler");
            fs::write(&filler, vec![0; 40 * 1024]).expect("room for 24 KiB");
            let path = directory.0.join("audit.log");
            let mut log = AuditLog::new(&directory.0);
            let mut sent = 0;
            let warning = loop {
                log.write(line(sent));
                sent += 1;
                if let Some(warning) = log.take_warning() {
                    break warning;
                }
            };
            assert!(warning.contains("No space left"), "{warning}");
            fs::remove_file(&filler).expect("room again");
            log.write(line(sent));
            drop(log);
            let lines = told(&path);
            mount(&["umount", "--lazy"]);
            let count = |(act, object): &(String, String)| match act.as_str() {
                "missing" => object.trim_end_matches(" lines").parse().expect("a number"),
                _ => 1,
            };
            assert!(lines.iter().any(|(act, _)| act == "missing"));
            assert_eq!(lines.iter().map(count).sum::<u64>(), sent + 1);
        }
    }
}
