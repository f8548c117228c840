/// The guide shows the code that is built and tested, piece by piece.
// promise: 31.11
#[test]
fn the_guide_shows_the_code_that_is_built() {
    let guide = include_str!("../../../../docs/guide/slices.md");
    let code = include_str!("../graphs/spectrum.rs");
    let catalogue = include_str!("../catalogue.rs");
    let blocks: Vec<&str> = guide.split("```rust\n").skip(1).collect();
    assert!(blocks.len() >= 5, "only {} pieces of code", blocks.len());
    for block in blocks {
        let block = block.split("```").next().unwrap_or_default();
        let is_there = code.contains(block) || catalogue.contains(block);
        assert!(is_there, "the guide shows code that is not there:\n{block}");
    }
}
