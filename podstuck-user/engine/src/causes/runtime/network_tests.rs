//! What a CNI plugin's error names.

use super::*;

/// As in multus-cni 570, containerd/cri issue 732, cri-o 595, amazon-vpc-cni-k8s 2487, calico 7272 and 7647, cni-plugin 377,
/// spidernet-io/cni-plugins 47, ovs-cni 276, weave 3587, sriov-cni 58, multus-cni 1448, CNI-Genie 221,
/// ib-sriov-cni 135.
#[test]
fn an_error_says_whom_the_plugin_does_not_reach_or_what_it_does_not_find() {
    let table = [
        (
            "dial tcp 10.10.25.230:4001: getsockopt: connection refused",
            Fault::Refuses("10.10.25.230:4001"),
        ),
        ("dial tcp [fd00::7]:2379: connect: connection refused", Fault::Refuses("[fd00::7]:2379")),
        ("dial tcp: lookup etcd.corp on 10.96.0.10:53: no such host", Fault::Refuses("etcd.corp")),
        (
            "Error while dialing dial tcp 127.0.0.1:50051: connect: connection refused",
            Fault::Agent(Some("127.0.0.1:50051")),
        ),
        ("dial tcp [::1]:9099: connect: connection refused", Fault::Agent(Some("[::1]:9099"))),
        (
            "dial unix /var/run/cilium/cilium.sock: connect: no such file or directory",
            Fault::Agent(Some("/var/run/cilium/cilium.sock")),
        ),
        (
            "could not teardown ipv4 dnat: running [/usr/sbin/iptables -t nat -X CNI-DN-0aa --wait]: exit status 4: \
             Another app is currently holding the xtables lock. Perhaps you want to use the -w option?",
            Fault::Locked,
        ),
        ("cni config uninitialized", Fault::NoConfig),
        (
            "cni config load failed: no network config found in /etc/cni/net.d: cni plugin not initialized",
            Fault::NoConfig,
        ),
        ("dial tcp 10.96.0.1:443: i/o timeout", Fault::Silent(Some("10.96.0.1:443"))),
        ("context deadline exceeded", Fault::Silent(None)),
        (
            "dial tcp 10.0.0.5:39102->10.96.0.1:443: i/o timeout",
            Fault::Silent(Some("10.96.0.1:443")),
        ),
        (
            "error getting ClusterInformation: connection is unauthorized: Unauthorized",
            Fault::Login,
        ),
        (
            "failed to find plugin \"weave-net\" in path [/opt/cni/bin]",
            Fault::NoProgram(Some("weave-net")),
        ),
        (
            r#"plugin type=\"istio-cni\" failed (delete): failed to find plugin \"istio-cni\" in path [/opt/cni/bin]"#,
            Fault::NoProgram(Some("istio-cni")),
        ),
        ("failed to find plugin \"a b\" in path [/opt/cni/bin]", Fault::NoProgram(None)),
        ("netplugin failed with no error message: signal: killed", Fault::Crashes),
        (
            "netplugin failed with no error message: fork/exec /opt/cni/bin/weave-net: text file busy",
            Fault::NotRun("/opt/cni/bin/weave-net"),
        ),
        ("netplugin failed but error parsing its diagnostic message \"\"", Fault::Crashes),
        ("failed to del rule table 500: no such file or directory", Fault::NothingLeft),
        (
            "Failed to obtain OVS port for given connection: failed to find object from table Port",
            Fault::NothingLeft,
        ),
        (
            "error reading cached NetConf in /var/lib/cni/sriov with name 0a1b-net1",
            Fault::NothingLeft,
        ),
        (
            "delegateDel: error invoking ConflistDel - \"cbr0\": conflistDel: error in getting result from \
             DelNetworkList: failed to parse netconf: unexpected end of JSON input",
            Fault::EmptyRecord,
        ),
        (
            "delegateDel: error invoking ConflistDel - \"k8s-pod-network\": conflistDel: error converting the raw bytes into \
             a conflist: error parsing configuration list: no 'plugins' key",
            Fault::BadRecord,
        ),
        ("error removing interface \"eth0\": Link not found", Fault::NothingLeft),
        (
            "CNI Genie error at ParsePodAnnotations: Corresponding binary for user requested plugin (weave) is not present \
             in plugin directory (/opt/cni/bin)",
            Fault::NoProgram(Some("weave")),
        ),
        (
            "failed to rename link net1 to host name : \"numerical result out of range\"",
            Fault::BadName,
        ),
        ("stat /run/antrea/cni.sock: no such file or directory", Fault::Agent(None)),
        (
            "failed to load flannel 'subnet.env' file: open /run/flannel/subnet.env: no such file or directory. Check the \
             flannel pod log for this node.",
            Fault::AgentsFile(Path::new("/run/flannel/subnet.env")),
        ),
        ("open /var/run/netns/cni-1: no such file or directory", Fault::NothingLeft),
        (
            "ovs-vsctl: unix:/var/run/openvswitch/db.sock: database connection failed (No such file or directory)",
            Fault::Agent(Some("/var/run/openvswitch/db.sock")),
        ),
        (
            "cmdDel: failed to unmarshal response '': unexpected end of JSON input",
            Fault::Agent(None),
        ),
        ("x", Fault::Unknown),
    ];
    for (text, fault) in table {
        assert_eq!(Fault::of(text), fault, "{text}");
    }
    assert_eq!(address("dial tcp \u{1b}[2J: x"), None);
    let of_libcni =
        r#"failed to destroy network: plugin type=\"aws-cni\" name=\"aws-cni\" failed (delete)"#;
    assert_eq!(plugin(of_libcni), Who::object("the CNI plugin aws-cni"));
    let of_multus =
        format!(r#"{of_libcni}: delegateDel: error invoking DelegateDel - \"ib-sriov\": x"#);
    assert_eq!(plugin(&of_multus), Who::object("the CNI plugin ib-sriov"));
    let of_list =
        format!(r#"{of_libcni}: delegateDel: error invoking ConflistDel - \"sriov-overlay\": x"#);
    let list = "the CNI plugin aws-cni, for the network sriov-overlay";
    assert_eq!(plugin(&of_list), Who::object(list));
    assert_eq!(plugin("cni config uninitialized"), Who::object("the CNI plugin"));
    let of_dockershim = "network: failed to find plugin \"flannel\" in path [/opt/cni/bin]";
    assert_eq!(plugin(of_dockershim), Who::object("the CNI plugin flannel"));
    let refuses =
        Fault::of("dial unix /run/multus/multus.sock: connect: connection refused").about();
    assert_eq!(refuses.waits_for.unwrap(), "its agent on this node, at /run/multus/multus.sock");
    assert!(refuses.way_out.unwrap().ends_with("must listen at /run/multus/multus.sock"));
}
