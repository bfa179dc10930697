//! Waste: how much an arena maps for tensors as a recommendation model's workers send them.
//!
//! The trace: between 400 and 800 tensors live. Seven in ten are parts of the model's own, a fifth or a tenth of
//! an embedding table's pull or of a layer; the others are ragged, 256 B to 4 MiB, as likely in each doubling.
use forebay_memory::{Config, Lease, Region};

const EMBEDDING: u64 = 131_072;
const LAYERS: [u64; 8] = [
    13 * 512 * 4,
    512 * 256 * 4,
    256 * 64 * 4,
    64 * 16 * 4,
    512 * 4,
    367 * 512 * 4,
    512 * 256 * 4,
    256 * 4,
];
const EMBEDDINGS: u64 = 26;
const STEPS: usize = 60_000;
const TRACES: u64 = 12;

/// Nothing is touched, so a terabyte of address space costs nothing.
const ENDLESS: u64 = 1 << 40;

/// A small generator of its own, so that the trace is the same for ever (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).expect("an index")
    }

    fn tensor_bytes(&mut self) -> usize {
        let bytes = if self.below(10) < 7 {
            let whole = match self.below(EMBEDDINGS + LAYERS.len() as u64) {
                0..EMBEDDINGS => EMBEDDING,
                _ => LAYERS[self.index(LAYERS.len())],
            };
            (whole / [5, 10][self.index(2)]).max(256)
        } else {
            // Two to the power of a number between 8 and 22, in steps of a 1024th.
            let exponent = 8.0
                + 14.0 * f64::from(u32::try_from(self.below(1 << 20)).expect("small"))
                    / f64::from(1 << 20);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below 2^22
            let bytes = exponent.exp2() as u64;
            bytes
        };
        usize::try_from(bytes).expect("below 4 MiB")
    }
}

/// Run the trace; returns how far the last block reached into its chunk at most.
fn run(region: &Region, seed: u64) -> u64 {
    let mut dice = Dice(seed);
    let mut live: Vec<Lease> = Vec::new();
    let mut top = 0;
    for _ in 0..STEPS {
        if live.len() < 400 || dice.below(2) == 0 {
            let block = region.allocate(dice.tensor_bytes()).expect("room");
            top = top.max(block.reference().offset + block.reference().length);
            live.push(block);
        } else {
            live.swap_remove(dice.index(live.len()));
        }
        if live.len() > 800 {
            live.swap_remove(dice.index(live.len()));
        }
    }
    top
}

/// In one chunk that is never full: how far it was used, over the most that was live.
fn waste(seed: u64) -> f64 {
    let config = Config::new("waste", ENDLESS).chunk_bytes(ENDLESS);
    let region = Region::new(config.idle_bytes_max(ENDLESS)).expect("a region");
    let top = run(&region, seed);
    let stats = region.stats().expect("owner");
    assert_eq!(stats.chunks, 1);
    ratio(top, stats.live_bytes_peak)
}

/// In chunks of the default size: what was mapped at most, over the most that was live.
fn waste_of_chunks(seed: u64) -> f64 {
    let region = Region::new(Config::new("waste", ENDLESS)).expect("a region");
    run(&region, seed);
    let stats = region.stats().expect("owner");
    ratio(stats.mapped_bytes_peak, stats.live_bytes_peak)
}

fn ratio(used: u64, live: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)] // below 2^52
    let ratio = used as f64 / live as f64;
    ratio
}

/// What lies on the thread's shelf is waste like any other here: nothing collects it.
#[test]
fn the_ragged_trace_takes_at_most_1_3_times_what_is_live_at_its_peak() {
    let ratios: Vec<f64> = (1..=TRACES).map(waste).collect();
    let average = ratios.iter().sum::<f64>() / f64::from(u32::try_from(TRACES).expect("few"));
    assert!(average <= 1.25, "{average:.3} on average of {ratios:.3?}");
    assert!(ratios.iter().all(|&ratio| ratio <= 1.3), "{ratios:.3?}");
    println!("{average:.3} on average of {ratios:.3?}");
}

/// The trace has some 105 MiB live at its peak, which is not two chunks of 64 MiB: blocks do not span chunks.
#[test]
fn in_chunks_of_the_default_size_the_trace_takes_at_most_1_9_times_what_is_live_at_its_peak() {
    let ratios: Vec<f64> = (1..=TRACES).map(waste_of_chunks).collect();
    assert!(ratios.iter().all(|&ratio| ratio <= 1.9), "{ratios:.3?}");
    println!("{ratios:.3?}");
}
