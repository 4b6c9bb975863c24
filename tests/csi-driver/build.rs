//! Makes Rust of the two interfaces. protox reads them, so that no protoc is needed.

fn main() -> anyhow::Result<()> {
    let files = ["proto/csi.proto", "proto/pluginregistration.proto"];
    println!("cargo::rerun-if-changed=proto");
    let described = protox::compile(files, ["proto"])?;
    // Without `connect`: callers bring a channel, and only tests call.
    tonic_prost_build::configure().build_transport(false).compile_fds(described)?;
    Ok(())
}
