//! What fuzzing has found worth keeping, once more.

use std::fs;
use std::path::Path;

use fuzzed::TARGETS;

#[test]
fn what_must_hold_holds_for_the_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, run) in TARGETS {
        let inputs: Vec<_> = fs::read_dir(corpus.join(name)).expect("a folder").collect();
        assert!(!inputs.is_empty(), "{name} has a corpus");
        let mut known = 0;
        for input in inputs {
            let path = input.expect("a file").path();
            println!("{}", path.display());
            known += usize::from(run(&fs::read(path).expect("its bytes")));
        }
        assert!(known > 0, "{name}: some are of its kind");
    }
}
