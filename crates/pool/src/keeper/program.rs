//! A client's launch as a program that the system can start.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::sys::Program;
use crate::wire::{Launch, OWN_DIRECTORY};

/// The program of a launch.
pub fn program_of(launch: &Launch) -> Program {
    let text = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
    Program {
        arguments: launch.arguments.iter().map(text).collect(),
        environment: launch
            .environment
            .iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect(),
        directory: text(&launch.directory),
        confinement: None,
    }
}

/// A program that knows its own directory: by `TMPDIR`, and wherever its launch names it.
pub fn with_own_directory(mut program: Program, directory: &OsStr) -> Program {
    let named = |text: &mut OsString| {
        if text.as_bytes().contains(&OWN_DIRECTORY) {
            let parts = text.as_bytes().split(|&byte| byte == OWN_DIRECTORY);
            let parts: Vec<&[u8]> = parts.collect();
            *text = OsString::from_vec(parts.join(directory.as_bytes()));
        }
    };
    program.arguments.iter_mut().for_each(named);
    let values = program.environment.iter_mut().map(|(_, value)| value);
    values.for_each(named);
    named(&mut program.directory);
    let home = directory.to_owned();
    program.environment.push(("TMPDIR".into(), home));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_finds_its_own_directory_where_it_asks_for_it() {
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let program = Program {
            arguments: vec![text(b"serve"), text(b"--at=unix:\0/socket"), text(b"\0:\0")],
            environment: vec![(text(b"WHERE"), text(b"\0/port"))],
            directory: text(b"\0"),
            confinement: None,
        };
        let program = with_own_directory(program, OsStr::new("/tmp/7"));
        let arguments = ["serve", "--at=unix:/tmp/7/socket", "/tmp/7:/tmp/7"];
        assert_eq!(program.arguments, arguments);
        assert_eq!(program.environment[0].1, "/tmp/7/port");
        assert_eq!(program.environment[1].0, "TMPDIR");
        assert_eq!(program.directory, "/tmp/7");
    }
}
