//! Which pages a region's chunks are made of.
//!
//! Huge pages make registering with the kernel or a device cheaper by the number of pages: 256 MiB in 0.26 ms
//! instead of 5.9 ms. They exist only where the machine is configured so: a pool of them (`vm.nr_hugepages`),
//! or transparent ones for shared memory (`shmem_enabled`), which is off by default.
use std::fmt;
use std::fs;

/// A huge page of the pool.
pub(crate) const HUGE_BYTES: u64 = 2 << 20;

const SHMEM_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Which pages chunks are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// What there is: of the pool, else transparent, else plain ones.
    #[default]
    Auto,
    /// Huge pages of 2 MiB from the machine's pool, which must have them free when a chunk is made.
    HugeTlb,
    /// Plain pages that the kernel may join to huge ones, where it is configured to for shared memory.
    /// A page that is touched may then take 2 MiB.
    Transparent,
    /// Plain pages of 4 KiB.
    Pages,
}

impl Backing {
    const ALL: [Self; 4] = [Self::Auto, Self::HugeTlb, Self::Transparent, Self::Pages];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::HugeTlb => "hugetlb",
            Self::Transparent => "transparent",
            Self::Pages => "pages",
        }
    }

    /// The backing that a word stands for.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|backing| backing.name() == name)
    }

    /// What to try, in order.
    pub(crate) fn candidates(self) -> &'static [Self] {
        match self {
            Self::Auto => &[Self::HugeTlb, Self::Transparent, Self::Pages],
            Self::HugeTlb => &[Self::HugeTlb],
            Self::Transparent => &[Self::Transparent],
            Self::Pages => &[Self::Pages],
        }
    }
}

/// What a chunk was made of in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backed {
    /// Never [`Backing::Auto`].
    pub pages: Backing,
    /// Why nothing better was to be had; empty for what was asked for.
    pub reason: String,
}

impl fmt::Display for Backed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason.as_str() {
            "" => f.write_str(self.pages.name()),
            reason => write!(f, "{} ({reason})", self.pages.name()),
        }
    }
}

/// Why the kernel would not make huge pages of shared memory by itself; `None` if it may.
pub(crate) fn no_transparent() -> Option<String> {
    let Ok(text) = fs::read_to_string(SHMEM_ENABLED) else {
        return Some("transparent: the kernel has none".into());
    };
    // The one in use stands in brackets.
    let chosen = text.split(['[', ']']).nth(1).unwrap_or("never");
    match chosen {
        "never" | "deny" => Some(format!("transparent: {SHMEM_ENABLED} is {chosen}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Backed, Backing};

    #[test]
    fn each_backing_has_a_word_and_no_other_word_names_one() {
        for backing in Backing::ALL {
            assert_eq!(Backing::named(backing.name()), Some(backing));
        }
        assert_eq!(Backing::named("huge"), None);
        assert_eq!(Backing::named(""), None);
    }

    #[test]
    fn what_it_became_is_told_with_the_reason() {
        let plain = Backed {
            pages: Backing::Pages,
            reason: "hugetlb: none".into(),
        };
        assert_eq!(plain.to_string(), "pages (hugetlb: none)");
        let asked = Backed {
            pages: Backing::Pages,
            reason: String::new(),
        };
        assert_eq!(asked.to_string(), "pages");
    }
}
