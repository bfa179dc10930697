//! Real verbs over the software device of a User-Mode Linux guest: `make test-verbs` builds that and runs these in it.
mod ablation;
mod discovery;
mod fences;
mod kills;
mod peer;
mod reads;
mod service;
mod support;
mod sys;
mod transfers;
