#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| refundd::fuzzing::run("card", input));
