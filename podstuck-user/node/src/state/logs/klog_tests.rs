use super::*;

const UID: &str = "0f0e0d0c-1111-4222-8333-444455556666";

fn now() -> Timestamp {
    "2026-03-02T00:00:00Z".parse().unwrap()
}

fn named(namespace: &str, name: &str) -> Option<Entry> {
    let (namespace, name) = (namespace.into(), name.into());
    Some(Entry::Named { namespace, name, uid: UID.into(), ended: None })
}

fn failed(error: &str) -> String {
    format!(
        "E0301 23:11:29.841398    7632 nestedpendingoperations.go:348] Operation for \
         \"{{volumeName:kubernetes.io/empty-dir/{UID}-data podName:{UID} nodeName:}}\" failed. No \
         retries permitted until 2026-03-01 23:12:33.841373347 +0000 UTC m=+132.550027554 \
         (durationBeforeRetry 1m4s). Error: {error}"
    )
}

#[test]
fn pods_are_named_in_the_lines_of_new_and_old_kubelets() {
    let killing = format!(
        "I0301 10:00:00.000001    77 kuberuntime_container.go:915] \"Killing container with a grace \
         period\" pod=\"shop/cart-0\" podUID=\"{UID}\" containerName=\"main\""
    );
    assert_eq!(parse(&killing, now()), named("shop", "cart-0"));
    let event = format!(
        "I0301 10:00:00.000001    77 kubelet.go:2752] \"SyncLoop (PLEG): event for pod\" \
         pod=\"shop/cart-0\" event={{\"ID\":\"{UID}\",\"Type\":\"ContainerDied\"}}"
    );
    assert_eq!(parse(&event.replace("Died", "Started"), now()), named("shop", "cart-0"));
    let of_go = format!(
        "I0301 10:00:00.000001    77 kubelet.go:2124] \"SyncLoop (PLEG): event for pod\" \
         pod=\"shop/cart-0\" event=&{{ID:{UID} Type:ContainerDied Data:1f0c}}"
    );
    let ended = |text: &str| match parse(text, now()) {
        Some(Entry::Named { ended, .. }) => ended.is_some(),
        other => panic!("{other:?}"),
    };
    assert!(ended(&event) && ended(&of_go) && !ended(&killing));
    assert_eq!(parse(&killing.replace(&format!("\"{UID}\""), UID), now()), named("shop", "cart-0"));
    let event = format!(
        "I0301 10:00:00.000001    77 kubelet.go:1898] SyncLoop (PLEG): \"cart-0_shop({UID})\", event: \
         &pleg.PodLifecycleEvent{{ID:\"{UID}\", Type:\"ContainerDied\", Data:\"1f0c\"}}"
    );
    assert!(ended(&event) && !ended(&event.replace("Died", "Started")));
    let old = format!(
        "I0301 10:00:00.000001    77 kubelet.go:1900] SyncLoop (DELETE, \"api\"): \
         \"cart-0_shop({UID})\""
    );
    assert_eq!(parse(&old, now()), named("shop", "cart-0"));
}

#[test]
fn what_others_choose_names_no_pod() {
    let lines = [
        format!("pod=\"kube-system/etcd\" podUID=\"{UID}\""),
        format!(
            "E0301 10:00:00.000001 7 x.go:1] \"failed\" err=\"/a/\\\" pod=\\\"kube-system/etcd\\\" \
             podUID=\\\"{UID}\\\"\""
        ),
        format!("I0301 10:00:00.000001 7 x.go:1] \"x\" pod=\"a b/c\" podUID=\"{UID}\""),
        "I0301 10:00:00.000001 7 x.go:1] \"x\" pod=\"a/c\" podUID=\"0-0\"".to_owned(),
    ];
    for line in lines {
        assert_eq!(parse(&line, now()), None, "{line}");
    }
}

#[test]
fn a_failed_operation_has_its_time_and_that_of_the_retry() {
    let path = format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~empty-dir/data/f");
    let text = failed(&format!(
        "UnmountVolume.TearDown failed for volume \"kubernetes.io/empty-dir/{UID}-data\" \
         (UniqueName: \"x\") pod \"{UID}\" (UID: \"{UID}\") : unlinkat {path}: operation not permitted"
    ));
    let Some(Entry::Failed(failed)) = parse(&text, now()) else { panic!() };
    let Failed { uid, volume, at, retry, error } = failed;
    let before: Timestamp = "2026-03-01T23:11:29.841373347Z".parse().unwrap();
    assert_eq!(at, before, "whatever the zone is");
    assert_eq!((uid.as_str(), volume), (UID, format!("kubernetes.io/empty-dir/{UID}-data")));
    assert_eq!(retry, "2026-03-01T23:12:33.841373347Z".parse().ok());
    assert_eq!(error, format!("unlinkat {path}: operation not permitted"));
    let call = named_call(&error).unwrap();
    assert_eq!((call.call, call.path.to_str()), (Call::Unlinkat, Some(path.as_str())));
    assert!(call.outcome.is(Errno::EPERM));
}

/// As in kubernetes issue 71584, of 1.9.7.
#[test]
fn a_failed_operation_is_found_in_the_log_of_old_kubelets_too() {
    let path = format!("/var/lib/kubelet/pods/{UID}/volume-subpaths/content/app/2");
    let text = format!(
        "E0301 23:11:29.841373    1192 nestedpendingoperations.go:267] Operation for \"\\\"kubernetes.io/nfs/{UID}-content\\\" \
         (\\\"{UID}\\\")\" failed. No retries permitted until 2026-03-01 23:12:33.841373347 +0000 UTC m=+8.5 \
         (durationBeforeRetry 1m4s). Error: \"error cleaning subPath mounts for volume \\\"content\\\" (UniqueName: \
         \\\"kubernetes.io/nfs/{UID}-content\\\") pod \\\"{UID}\\\" (UID: \\\"{UID}\\\") : error reading /a: lstat {path}: \
         stale NFS file handle\""
    );
    let Some(Entry::Failed(Failed { uid, volume, at, error, .. })) = parse(&text, now()) else {
        panic!()
    };
    assert_eq!((uid.as_str(), volume), (UID, format!("kubernetes.io/nfs/{UID}-content")));
    assert_eq!(Some(at), "2026-03-01T23:11:29.841373347Z".parse().ok());
    let look = named_look(&error).unwrap();
    assert_eq!(look.path.to_str(), Some(path.as_str()));
    assert!(look.outcome.is(Errno::ESTALE));
}

/// democratic-csi#344.
#[test]
fn what_a_driver_cannot_remove_by_rmdir_is_a_call() {
    let point = format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/pvc-1/mount");
    for words in [
        format!(
            "{{\"code\":1,\"stdout\":\"\",\"stderr\":\"rmdir: failed to remove '{point}': Directory not empty\\n\"}}"
        ),
        format!("exit status 1: rmdir: '{point}': Directory not empty"),
    ] {
        let error = format!(
            "kubernetes.io/csi: mounter.TearDownAt failed: rpc error: code = Internal desc = {words}"
        );
        let call = named_call(&error).unwrap();
        assert_eq!((call.call, call.path.to_str()), (Call::UnlinkatDir, Some(point.as_str())));
        assert!(call.outcome.is(Errno::ENOTEMPTY));
    }
    assert_eq!(
        named_call(&format!("rmdir: failed to remove '{point}': Directory not empty")),
        None
    );
}

/// As in kubernetes issues 139535 and 68740.
#[test]
fn what_kubelet_cannot_remove_of_a_subpath_is_a_call() {
    let path = format!("/var/lib/kubelet/pods/{UID}/volume-subpaths/cache/repro");
    for (words, errno) in
        [("directory not empty", Errno::ENOTEMPTY), ("device or resource busy", Errno::EBUSY)]
    {
        let text = format!(
            "E0301 23:11:29.841373    1192 nestedpendingoperations.go:348] Operation for \"{{volumeName:kubernetes.io/csi/a^b \
             podName:{UID} nodeName:}}\" failed. No retries permitted until 2026-03-01 23:12:33.841373347 +0000 UTC m=+8.5 \
             (durationBeforeRetry 1m4s). Error: error cleaning subPath mounts for volume \"cache\" (UniqueName: \
             \"kubernetes.io/csi/a^b\") pod \"{UID}\" (UID: \"{UID}\") : error deleting {path}: remove {path}: {words}"
        );
        let Some(Entry::Failed(Failed { error, .. })) = parse(&text, now()) else { panic!() };
        let call = named_call(&error).unwrap();
        assert_eq!(call.path.to_str(), Some(path.as_str()));
        assert!(call.outcome.is(errno), "{words}");
    }
}

#[test]
fn a_volume_that_was_torn_down_is_found_in_the_log_of_new_and_old_kubelets() {
    let volume = "kubernetes.io/csi/hostpath.csi.k8s.io^20d93e09";
    for outer in ["", "(OuterVolumeSpecName: \"pv\") "] {
        let text = format!(
            "I0301 00:10:33.272996    7632 operation_generator.go:782] UnmountVolume.TearDown succeeded \
             for volume \"{volume}\" {outer}pod \"{UID}\" (UID: \"{UID}\"). InnerVolumeSpecName \
             \"pv-web\". PluginName \"kubernetes.io/csi\", VolumeGIDValue \"\""
        );
        let Some(Entry::Done { uid, volume: named, at, report }) = parse(&text, now()) else {
            panic!()
        };
        assert_eq!(report, Report::TornDown);
        assert_eq!((uid.as_str(), named.as_str()), (UID, volume));
        assert_eq!(Some(at), written(&text, now()));
        let started = text.replace("succeeded", "started");
        assert_eq!(parse(&started, now()), None);
    }
}

#[test]
fn errors_that_are_quoted_or_have_several_lines() {
    let quoted = failed(&format!(
        "\"UnmountVolume.TearDown failed for volume \\\"pv\\\" (UniqueName: \\\"x\\\") pod \
         \\\"{UID}\\\" (UID: \\\"{UID}\\\") : kubernetes.io/csi: rpc error: code = NotFound\""
    ));
    let Some(Entry::Failed(Failed { error, .. })) = parse(&quoted, now()) else { panic!() };
    assert_eq!(error, "kubernetes.io/csi: rpc error: code = NotFound");
    assert_eq!(named_call(&error), None);
    let umount = failed(&format!(
        "UnmountVolume.TearDown failed for volume \"x\" (UniqueName: \"x\") pod \"{UID}\" (UID: \
         \"{UID}\") : unmount failed: exit status 32\nUnmounting arguments: /k/data\nOutput: umount: \
         /k/data: target is busy.\n\n"
    ));
    let Some(Entry::Failed(Failed { error, .. })) = parse(&umount, now()) else { panic!() };
    let call = named_call(&error).unwrap();
    assert_eq!((call.call, call.path.to_str()), (Call::Umount2, Some("/k/data")));
    assert!(!shown(&error).contains('\n') && shown("a\u{1b}[2J\nb") == r"a\x1b[2J b");
}

#[test]
fn a_csi_volumes_mount_point_is_named_by_kubelet_and_by_drivers() {
    let point = "/k/pods/u/volumes/kubernetes.io~csi/pv/mount";
    // As captured from kubelet 1.36, and as older kubelets wrote it.
    for csi in ["kubernetes.io/csi: Unmounter", "kubernetes.io/csi: mounter"] {
        let own = format!(
            "{csi}.TearDownAt failed to clean mount dir [{point}]: kubernetes.io/csi: failed to remove dir [{point}]: \
             remove {point}: device or resource busy"
        );
        let rpc = format!("{csi}.TearDownAt failed: rpc error: code = Internal desc =");
        let calls = [
            (own, Errno::EBUSY),
            (format!("{rpc} remove {point}: directory not empty"), Errno::ENOTEMPTY),
            (format!("{rpc} cleaning up: unlinkat {point}: operation not permitted"), Errno::EPERM),
        ];
        for (error, errno) in calls {
            let call = named_call(&error).unwrap_or_else(|| panic!("{error}"));
            let named = (call.path.to_str(), call.outcome.is(errno));
            assert_eq!(named, (Some(point), true), "{error}");
        }
        assert_eq!(named_call(&format!("{rpc} volume {point} not found")), None);
    }
}

#[test]
fn a_complaint_is_known_by_its_text() {
    let missing = "driver name x not found in the list of registered CSI drivers";
    assert_eq!(complaint(missing), Some(Complaint::NoDriver));
    let unavailable = "rpc error: code = Unavailable desc = dial unix";
    assert_eq!(complaint(unavailable), Some(Complaint::DriverDown));
    let unavailable = |desc: &str| {
        complaint(&format!(
            "kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: code = Unavailable desc = {desc}"
        ))
    };
    let at_socket = |what: &str| unavailable(&format!("connection error: desc = \"{what}\""));
    let dialing =
        "transport: Error while dialing: dial unix /k/csi.sock: connect: connection refused";
    assert_eq!(at_socket(dialing), Some(Complaint::DriverDown));
    // As captured with a driver that SIGSTOP keeps from accepting the connection, and with one that ends meanwhile.
    let preface = "error reading server preface: ";
    let stopped =
        format!("{preface}raw-read unix @->/k/csi.sock: use of closed network connection");
    assert_eq!(at_socket(&stopped), Some(Complaint::DriverHangs));
    assert_eq!(at_socket(&format!("{preface}EOF")), Some(Complaint::DriverDown));
    assert_eq!(unavailable("error reading from server: EOF"), Some(Complaint::DriverDown));
    // The driver's own answer, about its servers.
    let backend = "transport: Error while dialing: dial tcp 10.0.0.1:443: i/o timeout";
    assert_eq!(at_socket(backend), Some(Complaint::DriverError));
    assert_eq!(unavailable("the array is in maintenance"), Some(Complaint::DriverError));
    let aborted = "rpc error: code = Aborted desc = pending";
    assert_eq!(complaint(aborted), Some(Complaint::DriverHangs));
    let late = "rpc error: code = DeadlineExceeded desc = context deadline exceeded";
    assert_eq!(complaint(late), Some(Complaint::DriverTimesOut));
    let busy = "kubernetes.io/csi: mounter.TearDownAt failed to clean mount dir [/k/mount]: remove /k/mount: \
        device or resource busy";
    assert_eq!(complaint(busy), Some(Complaint::StillMounted));
    let cleans = "kubernetes.io/csi: Unmounter.TearDownAt failed to clean mount dir [/k/mount]: ";
    let dead = format!("{cleans}lstat /k/mount: transport endpoint is not connected");
    assert_eq!(complaint(&dead), Some(Complaint::StillMounted));
    let file = format!(
        "{cleans}kubernetes.io/csi: failed to delete volume data file [/k/vol_data.json]: remove \
         /k/vol_data.json: operation not permitted"
    );
    assert_eq!(complaint(&file), None, "the driver succeeded, and kubelet has its data");
    let call = named_call(&file).unwrap();
    assert_eq!((call.call, &*call.path), (Call::Unlinkat, Path::new("/k/vol_data.json")));
    let not_found = "rpc error: code = NotFound desc = gone";
    assert_eq!(complaint(not_found), Some(Complaint::DriverError));
    let no_data = "unmounter failed to load volume data file [/k]: EOF";
    assert_eq!(complaint(no_data), Some(Complaint::NoData));
    assert_eq!(complaint("unlinkat /k/f: operation not permitted"), None);
}

/// As captured from kubelet 1.36, which logs no event with the name of a pod that was deleted by force.
#[test]
fn a_containers_end_is_known_without_its_pods_name() {
    let id = "6b4d24c22603450f4d43a997b83cc051e13c263a6bb5fe6d941485076d26e756";
    let line = |uid: &str, rest: &str| {
        let line = format!(
            "I1126 22:16:49.724016   11574 generic.go:413] \"Generic (PLEG): container finished\" \
             podID=\"{uid}\" containerID=\"{id}\" exitCode=0{rest}"
        );
        parse(&line, now())
    };
    for uid in [UID, "1a37ffc387077f8fbab2c010c19b08f1"] {
        let Some(Entry::Done { uid: found, volume, report, .. }) = line(uid, "") else { panic!() };
        assert_eq!((found.as_str(), volume.as_str(), report), (uid, "", Report::ContainerEnded));
    }
    assert_eq!(line("..", ""), None);
    assert_eq!(line(UID, " more"), None);
}

#[test]
fn a_year_is_the_last_that_fits() {
    let at = |month: &str, day: &str| time(month, day, "00:00:00.000000", now()).unwrap();
    assert!(at("03", "01") < now() && at("03", "01").as_second() > now().as_second() - 100_000 * 2);
    assert!(at("12", "31") < now(), "last year's");
}

#[test]
fn an_entry_begins_with_a_header() {
    assert_eq!(writer(b"E0301 10:00:00.000001    7 x.go:1] y"), Some(7));
    assert_eq!(writer(b"Output: umount: /k/data: target is busy."), None);
    assert_eq!(writer(b"E0301 10:00:00.000001 99999999999 x.go:1] y"), None);
}

#[test]
fn no_token_is_shown() {
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl";
    for (text, shows) in [
        (format!("tokens {token} end"), "tokens (not shown) end"),
        ("Authorization: Bearer abcdefgh12345678".into(), "Authorization: Bearer (not shown)"),
        (
            "{\"password\":\"hunter2hunter2\",\"a\":1}".into(),
            "{\"password\":\"(not shown)\",\"a\":1}",
        ),
        ("mount -o password=hunter2hunter2,ro /v".into(), "mount -o password=(not shown),ro /v"),
        ("its token: Unauthorized".into(), "its token: Unauthorized"),
        ("unlinkat /k/secret/token-x: busy".into(), "unlinkat /k/secret/token-x: busy"),
    ] {
        assert_eq!(shown(&text), shows);
    }
}

#[test]
fn an_operation_that_is_refused_before_it_begins_has_no_retry() {
    // As recorded with kubelet 1.20.
    let plain = format!(
        "E1122 15:55:14.732085   26069 reconciler.go:193] operationExecutor.UnmountVolume failed \
         (controllerAttachDetachEnabled true) for volume \"data\" (UniqueName: \
         \"kubernetes.io/csi/d.example^h\") pod \"{UID}\" (UID: \"{UID}\") : UnmountVolume.NewUnmounter \
         failed for volume \"data\" (UniqueName: \"kubernetes.io/csi/d.example^h\") pod \"{UID}\" (UID: \
         \"{UID}\") : kubernetes.io/csi: unmounter failed to load volume data file [/v/mount]: open \
         /v/vol_data.json: no such file or directory"
    );
    // As klog.ErrorS writes the same (pkg/kubelet/volumemanager/reconciler/reconciler_common.go, 1.27).
    let quoted = plain.split_once("] ").map(|(header, message)| {
        let message = message.replace('"', "\\\"");
        format!("{header}] \"{message}\" err=\"UnmountVolume.NewUnmounter failed\"")
    });
    for text in [plain, quoted.unwrap()] {
        let Some(Entry::Failed(failed)) = parse(&text, now()) else { panic!("{text}") };
        assert_eq!((failed.uid.as_str(), failed.retry), (UID, None));
        assert_eq!(failed.volume, "kubernetes.io/csi/d.example^h");
        assert!(
            failed.error.starts_with("kubernetes.io/csi: unmounter failed"),
            "{}",
            failed.error
        );
        assert!(failed.error.ends_with("no such file or directory"), "{}", failed.error);
        assert_eq!(complaint(&failed.error), Some(Complaint::NoData));
    }
}

/// As in kubernetes pull request 101305, csi-driver-smb issues 64 and 782, and kubernetes issue 62824.
#[test]
fn a_failed_stat_is_named() {
    let path = "/var/lib/kubelet/pods/8dff9f0d-7f82-415c-9a5b-c32e81fb3ea4/volumes/kubernetes.io~csi/pvc-1/mount";
    for (error, errno) in [
        (
            format!(
                "kubernetes.io/csi: mounter.TearDownAt failed to clean mount dir [{path}]: stat {path}: host is down"
            ),
            Some(Errno::EHOSTDOWN),
        ),
        (
            format!(
                "kubernetes.io/csi: mounter.TearDownAt failed: rpc error: code = Internal desc = failed to stat \
                 file {path}: lstat {path}: host is down"
            ),
            Some(Errno::EHOSTDOWN),
        ),
        (
            format!("Error checking if path exists: stat {path}: permission denied"),
            Some(Errno::EACCES),
        ),
        (format!("stat {path}: input/output error\n"), Some(Errno::EIO)),
        // kubernetes#75233.
        (
            format!(
                "pod \"u\" found, but error stat {path}: permission denied occurred during checking mounted volumes from \
                 disk"
            ),
            Some(Errno::EACCES),
        ),
        // RemoveAll since Go 1.19, at a FUSE mount in an emptyDir whose server is gone.
        (format!("openfdat {path}: transport endpoint is not connected"), Some(Errno::ENOTCONN)),
        (format!("stat {path}: resource temporarily unavailable"), Some(Errno::EAGAIN)),
        (format!("stat {path}: no such file or directory"), None),
        (format!("unlinkat {path}: host is down"), None),
        (format!("stat {path}: host is down, or not"), None),
    ] {
        let look = named_look(&error);
        let outcome = look.as_ref().and_then(|look| look.outcome.errno());
        assert_eq!(outcome, errno, "{error}");
        assert!(look.is_none_or(|look| look.path == std::path::Path::new(path)), "{error}");
    }
}

/// As `GenerateUnmapVolumeFunc` and `AttachedVolume.GenerateError` in pkg/volume/util write them.
#[test]
fn a_raw_block_volume_that_is_not_unmapped_concerns_its_pod() {
    let volume = "kubernetes.io/csi/block.example^h-1";
    let map = "/k/plugins/kubernetes.io/csi/volumeDevices/pv/dev";
    let errors = [
        format!(
            "UnmapBlockVolume: blkUtil.DetachFileDevice failed. globalUnmapPath:{map}, podUID: {UID}: x"
        ),
        "UnmapPodDevice: rpc error: code = Internal desc = busy".to_owned(),
    ];
    for error in errors {
        let (operation, error) = error.split_once(": ").unwrap();
        let text = failed(&format!(
            "UnmapVolume.{operation} failed for volume \"raw\" (UniqueName: \"{volume}\") pod \"{UID}\" \
             (UID: \"{UID}\") : {error}"
        ));
        let Some(Entry::Failed(failed)) = parse(&text, now()) else { panic!("{text}") };
        assert_eq!((failed.uid.as_str(), failed.error.as_str()), (UID, error));
    }
    let busy = "blkUtil.DetachFileDevice failed. globalUnmapPath:/k, podUID: u, bindMount: true: umount: \
                target is busy.";
    assert_eq!(complaint(busy), Some(Complaint::MapBusy));
    let published = "/k/plugins/kubernetes.io/csi/volumeDevices/publish/pv/u";
    let by_driver = |path: &str, why: &str| {
        complaint(&format!(
            "kubernetes.io/csi: blockMapper.unpublishVolumeForBlock failed: rpc error: code = Unknown desc = \
             unmount target path: unmount failed: exit status 32\nUnmounting arguments: {path}\nOutput: umount: \
             {path}: {why}."
        ))
    };
    assert_eq!(by_driver(published, "target is busy"), Some(Complaint::MapBusy));
    // Another mount of the driver's, another reason.
    let staged = "/k/plugins/kubernetes.io/csi/volumeDevices/staging/pv";
    assert_eq!(by_driver(staged, "target is busy"), Some(Complaint::DriverError));
    assert_eq!(by_driver(published, "not mounted"), Some(Complaint::DriverError));
    let done = format!(
        "I0301 00:10:33.272996    7632 operation_generator.go:1150] UnmapVolume succeeded for volume \
         \"{volume}\" (OuterVolumeSpecName: \"raw\") pod \"{UID}\" (UID: \"{UID}\"). \
         InnerVolumeSpecName \"pv\". PluginName \"kubernetes.io/csi\", VolumeGIDValue \"\""
    );
    let Some(Entry::Done { uid, volume: named, report, .. }) = parse(&done, now()) else {
        panic!()
    };
    assert_eq!((uid.as_str(), named.as_str(), report), (UID, volume, Report::Unmapped));
}

#[test]
fn a_device_that_is_still_referenced_concerns_no_single_pod() {
    let volume = "kubernetes.io/csi/d.example^h";
    let of = |error: &str| {
        format!(
            "E0301 23:11:29.841398    7632 nestedpendingoperations.go:348] Operation for \
             \"{{volumeName:{volume} podName: nodeName:}}\" failed. No retries permitted until 2026-03-01 \
             23:12:33.841373347 +0000 UTC m=+132.5 (durationBeforeRetry 1m4s). Error: {error}"
        )
    };
    let on = |what: &str, error: &str| {
        of(&format!("{what} for volume \"pv\" (UniqueName: \"{volume}\") on node \"n\" : {error}"))
    };
    let mounted = "The device mount path \"/k/plugins/kubernetes.io/csi/d.example/0a/globalmount\" is still \
                   mounted by other references [/mnt/copy]";
    let mapped = "The device \"/k/plugins/kubernetes.io/csi/volumeDevices/pv/dev\" is still referenced from \
                  other Pods [/k/plugins/kubernetes.io/csi/volumeDevices/pv/dev/u]";
    let in_use = "the device is in use when it was no longer expected to be in use";
    let errors = [
        ("GetDeviceMountRefs check failed", mounted, Complaint::DeviceMounted),
        ("UnmapDevice failed", mapped, Complaint::DeviceMapped),
        ("UnmountDevice failed", in_use, Complaint::DeviceInUse),
    ];
    for (what, error, known) in errors {
        let Some(Entry::Failed(failed)) = parse(&on(what, error), now()) else { panic!("{error}") };
        assert_eq!((failed.uid.as_str(), failed.volume.as_str()), ("", volume));
        assert_eq!(failed.error, error);
        assert_eq!(failed.retry, "2026-03-01T23:12:33.841373347Z".parse().ok());
        assert_eq!(complaint(error), Some(known));
    }
    // It is not known which pod this concerns.
    let driver = "rpc error: code = Internal desc = busy";
    assert_eq!(parse(&on("UnmountDevice failed", driver), now()), None);
    assert_eq!(parse(&of("MountVolume.MountDevice failed for volume \"pv\""), now()), None);
    // As recorded with kubelet 1.36.
    let done = format!(
        "I1122 00:10:33.376850    7632 operation_generator.go:895] UnmountDevice succeeded for volume \"pv\" \
         (UniqueName: \"{volume}\") on node \"kc-node\" "
    );
    let Some(Entry::Done { uid, volume: named, report, .. }) = parse(&done, now()) else {
        panic!()
    };
    assert_eq!((uid.as_str(), named.as_str(), report), ("", volume, Report::DeviceReleased));
}

/// As kubelet 1.30 and 1.36 write them.
#[test]
fn a_failed_mount_names_its_pod_where_the_operation_does_not() {
    let of = |unique: &str, what: &str, pod: &str| {
        let line = format!(
            "E0301 23:11:29.841398    7632 nestedpendingoperations.go:348] Operation for \
             \"{{volumeName:{unique} podName: nodeName:}}\" failed. No retries permitted until 2026-03-01 \
             23:12:33.841373347 +0000 UTC m=+132.5 (durationBeforeRetry 1m4s). Error: {what} failed for volume \
             \"local-pv-1\" (UniqueName: \"{unique}\") pod \"web-0\" (UID: \"{pod}\") : input/output error"
        );
        match parse(&line, now()) {
            Some(Entry::Failed(failed)) => Some((failed.uid, failed.volume)),
            _ => None,
        }
    };
    let named = |volume: &str| Some((UID.to_owned(), volume.to_owned()));
    let (local, csi) = ("kubernetes.io/local-volume/local-pv-1", "kubernetes.io/csi/d^h");
    let in_pod = format!("kubernetes.io/local-volume/{UID}-local-pv-1");
    assert_eq!(of(local, "MountVolume.NewMounter initialization", UID), named(&in_pod));
    assert_eq!(of(csi, "MountVolume.SetUp", UID), named(csi));
    assert_eq!(of(csi, "MountVolume.SetUp", "web-0"), None);
    assert_eq!(of(csi, "UnmountVolume.TearDown", UID), None);
}

#[test]
fn a_pod_is_named_by_what_is_done_for_its_volume_or_a_probe() {
    let uid = "979535ca-3b08-41a4-8ba1-1af6d8c7c859";
    let of_volume = format!(
        "\"MountVolume.SetUp succeeded for volume \\\"data\\\" (UniqueName: \\\"kubernetes.io/empty-dir/{uid}-data\\\") pod \
         \\\"web\\\" (UID: \\\"{uid}\\\") \" pod=\"shop/web\""
    );
    let probe = format!(
        "\"Probe failed\" probeType=\"Startup\" pod=\"shop/web\" podUID=\"{uid}\" containerName=\"a\" output=\"\""
    );
    let named = |message: &str| {
        let line = format!("I1122 00:10:23.285653    7632 source.go:251] {message}");
        match parse(&line, Timestamp::UNIX_EPOCH) {
            Some(Entry::Named { namespace, name, uid, .. }) => Some((namespace, name, uid)),
            _ => None,
        }
    };
    for line in [&of_volume, &probe] {
        assert_eq!(named(line), Some(("shop".into(), "web".into(), uid.into())), "{line}");
    }
    let other = of_volume.replace("\"shop/web\"", "\"shop/other\"");
    let quoted =
        format!("\"x\" err={:?} pod=\"shop/web\"", format!("pod \"web\" (UID: \"{uid}\") "));
    for line in [other, quoted] {
        assert_eq!(named(&line), None, "{line}");
    }
}

/// Requiem4Eternity/Appstream#108: the name of the file ends with a colon.
#[test]
fn a_runtimes_error_names_the_file_that_it_may_not_remove() {
    let error = "Handler for DELETE /v1.41/containers/5c0d returned error: container 5c0d: driver \"overlay2\" failed to \
        remove root filesystem: unlinkat /var/lib/docker/overlay2/1a/diff/system/.ku:: operation not permitted";
    let call = refused_removal(error).unwrap();
    assert_eq!(call.path, std::path::Path::new("/var/lib/docker/overlay2/1a/diff/system/.ku:"));
    assert!(call.outcome.is(Errno::EPERM) && call.call == Call::Unlinkat);
    assert_eq!(refused_removal("unlinkat /a: device or resource busy"), None);
    assert_eq!(refused_removal("xunlinkat /a: operation not permitted"), None);
}
