//! Whether a starting program has said that it is ready, by a line of its output or by a file.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use regex_lite::Regex;
use rustix::fs::{CWD, Mode, OFlags, inotify, openat};

use crate::error::{Error, Result};
use crate::limit::LINE_BYTES_MAX;
use crate::readiness::{Readiness, pattern_of};

/// What the keeper looks at until a program is ready.
#[derive(Debug, Default)]
pub enum Watch {
    /// Nothing: it is ready, or its readiness is another's affair.
    #[default]
    Nothing,
    /// Its output.
    Line(Lines),
    /// Its directory.
    File(File),
}

impl Watch {
    /// Begin to watch; before the program is started, so that nothing can be missed.
    pub fn new(readiness: &Readiness, directory: &Path) -> Result<Self> {
        Ok(match readiness {
            Readiness::Itself | Readiness::Runs => Self::Nothing,
            Readiness::Line(pattern) => Self::Line(Lines::new(pattern)?),
            Readiness::File(name) => Self::File(File::new(name, directory)?),
        })
    }

    /// Look at more output. The line that says ready, once.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let Self::Line(lines) = self else {
            return None;
        };
        let found = lines.feed(bytes)?;
        *self = Self::Nothing;
        Some(found)
    }

    /// Look at the file. Its content, once; `done` may stop watching it.
    pub fn look(&mut self, done: impl FnOnce(&File)) -> Option<Vec<u8>> {
        let Self::File(file) = self else {
            return None;
        };
        let found = file.look()?;
        done(file);
        *self = Self::Nothing;
        Some(found)
    }
}

/// Output, line by line.
#[derive(Debug)]
pub struct Lines {
    pattern: Regex,
    line: Vec<u8>,
}

impl Lines {
    fn new(pattern: &[u8]) -> Result<Self> {
        Ok(Self {
            pattern: pattern_of(&String::from_utf8_lossy(pattern))?,
            line: Vec::new(),
        })
    }

    fn feed(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
            self.line.extend(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                let text = String::from_utf8_lossy(&line);
                let text = text.trim_end_matches(['\r', '\n']);
                if self.pattern.is_match(text) {
                    return Some(text.as_bytes().to_vec());
                }
            }
        }
        None
    }
}

/// A file that is to appear in a directory.
#[derive(Debug)]
pub struct File {
    /// Readable when something was written and closed, or moved, in the directory.
    pub inotify: OwnedFd,
    path: PathBuf,
}

impl File {
    fn new(name: &[u8], directory: &Path) -> Result<Self> {
        use std::os::unix::ffi::OsStrExt;
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let inotify = inotify::init(flags).map_err(Error::system(
            "inotify_init1 (fs.inotify.max_user_instances limits programs that start at once)",
        ))?;
        let events = inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&inotify, directory, events)
            .map_err(Error::system("inotify_add_watch"))?;
        let path = directory.join(std::ffi::OsStr::from_bytes(name));
        Ok(Self { inotify, path })
    }

    /// What the file holds, where it is there and not empty: an empty one was opened and is not written yet.
    fn look(&self) -> Option<Vec<u8>> {
        let mut events = [0; 4096];
        while rustix::io::read(&self.inotify, &mut events).is_ok_and(|count| count > 0) {}
        // A FIFO or a link under its name is neither waited for nor followed.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(CWD, &self.path, flags, Mode::empty()).ok()?;
        let mut content = vec![0; LINE_BYTES_MAX];
        let count = rustix::io::read(&file, &mut content).ok()?;
        content.truncate(count);
        (count > 0).then_some(content)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pattern: &str) -> Watch {
        Watch::Line(Lines::new(pattern.as_bytes()).expect("a pattern"))
    }

    #[test]
    fn a_line_is_matched_when_it_is_whole_and_only_once() {
        let mut watch = lines("^listening on (.*)$");
        assert_eq!(watch.feed(b"starting\nlisteni"), None);
        assert_eq!(watch.feed(b"ng on 127.0.0.1:80"), None);
        let told = watch.feed(b"01\r\nlistening on nothing\n");
        assert_eq!(told.as_deref(), Some(&b"listening on 127.0.0.1:8001"[..]));
        assert_eq!(watch.feed(b"listening on it again\n"), None);
    }

    #[test]
    fn a_line_without_end_takes_a_limited_room() {
        let mut watch = lines("ready");
        for _ in 0..100 {
            assert_eq!(watch.feed(&[b'x'; 1000]), None);
        }
        let Watch::Line(lines) = &watch else {
            unreachable!("it has not matched");
        };
        assert_eq!(lines.line.len(), LINE_BYTES_MAX);
        assert_eq!(watch.feed(b"\nready\n").as_deref(), Some(&b"ready"[..]));
    }

    #[test]
    fn a_file_is_ready_when_it_has_content() {
        let name = format!("forebay-watch-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a directory of our own");
        let readiness = Readiness::File(b"port".to_vec());
        let mut watch = Watch::new(&readiness, &directory).expect("a watch");
        assert_eq!(watch.look(|_| ()), None);
        std::fs::write(directory.join("port"), b"").expect("written");
        assert_eq!(watch.look(|_| ()), None);
        std::fs::write(directory.join("other"), b"1").expect("written");
        std::fs::rename(directory.join("other"), directory.join("port")).expect("moved");
        assert_eq!(watch.look(|_| ()).as_deref(), Some(&b"1"[..]));
        assert_eq!(watch.look(|_| ()), None);
        std::fs::remove_dir_all(&directory).expect("ours");
    }
}
