//! The machine against a world that fails: late commits, a full disk, dying workers, cancels, crashes, time.
//!
//! A run is its seed: what fails is printed with it, and fails again, aloud, with `FOREBAY_SIMULATION_SEED`.
//! `FOREBAY_SIMULATION_SEEDS` says how many seeds of 2,000 steps the long run has.

#[path = "simulation/chance.rs"]
mod chance;
#[path = "../../transport/tests/counted/mod.rs"]
mod counted;
#[path = "simulation/deeds.rs"]
mod deeds;
#[path = "simulation/disk.rs"]
mod disk;
#[path = "simulation/drawn.rs"]
mod drawn;
#[path = "simulation/event.rs"]
mod event;
#[path = "simulation/law.rs"]
mod law;
#[path = "simulation/model/mod.rs"]
mod model;
#[path = "simulation/planted.rs"]
mod planted;
#[path = "simulation/shares.rs"]
mod shares;
#[path = "simulation/workers.rs"]
mod workers;
#[path = "simulation/world.rs"]
mod world;

use planted::Planted;
use world::World;

/// Steps of one seed, before everything is let end.
const STEPS: u64 = 2_000;

fn simulate(seeds: std::ops::Range<u64>, planted: Planted) -> Result<(), String> {
    let is_single = seeds.end - seeds.start == 1;
    for seed in seeds {
        let mut world = World::new(seed, planted);
        world.aloud = is_single; // what a million steps print does not fit the memory
        let broken = world.run(STEPS);
        broken.map_err(|broken| format!("FOREBAY_SIMULATION_SEED={seed}: {broken:.2000}"))?;
    }
    Ok(())
}

/// As `simulate` without a planted fault, while operators set cordons and take them back.
fn simulate_cordons(seeds: std::ops::Range<u64>) -> Result<(), String> {
    for seed in seeds {
        let mut world = World::new(seed, Planted::Nothing);
        world.cordons = true;
        let broken = world.run(STEPS);
        broken.map_err(|broken| format!("seed {seed}, with cordons: {broken:.2000}"))?;
    }
    Ok(())
}

fn held(seeds: std::ops::Range<u64>) {
    let _watch = counted::Watch;
    if let Err(broken) = simulate(seeds, Planted::Nothing) {
        panic!("{broken}");
    }
}

#[test]
fn forty_thousand_steps_break_no_invariant() {
    let seed = std::env::var("FOREBAY_SIMULATION_SEED").ok();
    match seed.map(|seed| seed.parse::<u64>().expect("a seed is a number")) {
        Some(seed) => held(seed..seed + 1),
        None => held(0..20),
    }
}

#[test]
fn a_million_steps_break_no_invariant() {
    let seeds = std::env::var("FOREBAY_SIMULATION_SEEDS").ok();
    let seeds = seeds.map_or(500, |seeds| {
        seeds.parse::<u64>().expect("a number of seeds")
    });
    held(1_000..1_000 + seeds);
}

#[test]
fn cordons_break_no_invariant() {
    let _watch = counted::Watch;
    if let Err(broken) = simulate_cordons(2_000..2_020) {
        panic!("{broken}");
    }
}

#[test]
fn lanes_share_by_their_weights() {
    let _watch = counted::Watch;
    for seed in 0..50 {
        if let Err(broken) = shares::held(seed) {
            panic!("seed {seed}: {broken}");
        }
    }
}

#[test]
fn planted_faults_are_found() {
    for (planted, law) in [
        (Planted::DeathLost, "5:"),
        (Planted::SentTwice, "3:"),
        (Planted::ToldEarly, "2:"),
        (Planted::NoJournal, "4:"),
        (Planted::PlaceReused, "5:"),
    ] {
        let broken = simulate(0..200, planted).expect_err("a planted fault breaks an invariant");
        assert!(
            broken.contains(law),
            "{planted:?} was found by another invariant: {broken}"
        );
    }
}
