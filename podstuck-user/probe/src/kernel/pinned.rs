//! Pins what outlives this process, and takes over what the one before has pinned: see [`podstuck_common::kept`].

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use aya::{
    Ebpf,
    maps::{Array, Map, MapData, MapInfo, PerCpuArray},
    programs::links::PinnedLink,
};
use podstuck_common::{kept, record::loss};
use podstuck_confine::{fork_server::drop_at_once, pins::Pins};

use super::{
    attach::Attached,
    hooks::{Form, Rest},
    links::Links,
};

/// What this process takes over.
#[derive(Debug, Default)]
pub struct Inherited {
    /// The totals of the processes before, as their text.
    pub totals: Vec<u8>,
    /// Losses since the maps were created, by `record::loss`, before this process has attached anything.
    pub losses: Vec<u64>,
    /// Why calls since the last total may be missing.
    pub gap: Option<String>,
}

/// Maps that outlive this process.
pub struct Kept {
    pins: Pins,
    turn: u32,
    /// What was taken over.
    pub inherited: Inherited,
}

impl Kept {
    /// Pins these new maps, or takes over those that are pinned, if they have the same form: of all others, nothing but
    /// the totals is used. From then on, the probes of other processes leave the calls of this one to its own probes.
    ///
    /// # Errors
    /// Fails if they cannot be pinned. Then nothing is pinned any more.
    pub(super) fn open(pins: Pins, new: &Ebpf, secret: u64) -> Result<Self> {
        match examine(&pins, new).and_then(|inherited| Ok((own(&pins, secret)?, inherited))) {
            Ok((turn, inherited)) => Ok(Self { pins, turn, inherited }),
            Err(why) => {
                remove(pins);
                Err(why)
            }
        }
    }

    pub(super) fn maps(&self) -> PathBuf {
        self.pins.maps()
    }

    pub(super) const fn turn(&self) -> u32 {
        self.turn
    }

    /// Makes the probes of this process count.
    pub(super) fn begin(&self, ebpf: &mut Ebpf) -> Result<()> {
        set(ebpf, kept::ACTIVE, u64::from(self.turn))
    }

    /// Pins the probes of this process, and removes those of the processes before.
    ///
    /// # Errors
    /// Fails if a hook cannot be pinned, as those of tracepoints and kprobes before Linux 5.15.
    pub(super) fn pin(
        &self,
        ebpf: &mut Ebpf,
        links: &mut Links,
        attached: &Attached,
    ) -> Result<()> {
        if !aya::features().bpf_perf_link() && attached.has_any_but(Form::Function) {
            bail!("before Linux 5.15, only probes by fentry can outlive a process");
        }
        let before = self.pins.hooks()?;
        let hooks = self.pins.new_hooks(self.turn)?;
        for rest in Rest::ALL {
            // Without a file, the kernel empties the table when this process ends.
            let map = ebpf.map(rest.table).with_context(|| format!("no map `{}`", rest.table))?;
            map.pin(hooks.join(rest.table)).with_context(|| format!("pinning `{}`", rest.table))?;
        }
        let pinned = links.pin(&hooks)?;
        set(ebpf, kept::HOOKS, pinned)?;
        before.iter().try_for_each(|hooks| detach(hooks))
    }

    /// Removes everything that is pinned.
    pub(super) fn give_up(self) {
        remove(self.pins);
    }
}

fn remove(pins: Pins) {
    if let Err(error) = pins.remove() {
        tracing::warn!("{error:#}");
    }
}

fn set(ebpf: &mut Ebpf, word: u32, value: u64) -> Result<()> {
    let map = ebpf.map_mut(kept::KEPT).context("this build has no map `KEPT`")?;
    let mut words: Array<_, u64> = map.try_into()?;
    words.set(word, value, 0).context("writing `KEPT`")
}

/// Makes this process the owner; returns its turn.
fn own(pins: &Pins, secret: u64) -> Result<u32> {
    ensure!(secret != 0, "there is no random number");
    let mut words = words(&pins.maps().join(kept::KEPT))?;
    let turn = words.get(&kept::TURN, 0)? as u32 + 1;
    let own = [
        (kept::TURN, u64::from(turn)),
        (kept::SECRET, secret),
        (kept::STARTED, 0),
        (kept::OWNER, u64::from(std::process::id())),
    ];
    own.into_iter()
        .try_for_each(|(word, value)| words.set(word, value, 0))
        .context("writing `KEPT`")?;
    Ok(turn)
}

/// What is pinned. Maps of another form are replaced.
fn examine(pins: &Pins, new: &Ebpf) -> Result<Inherited> {
    let gap = match matching(&pins.maps(), new) {
        Ok(true) => match read(&pins.maps()) {
            Ok(inherited) => {
                return Ok(Inherited { gap: inherited.gap.or(detached(pins)?), ..inherited });
            }
            Err(why) => Some(why),
        },
        Ok(false) => None,
        Err(why) => Some(why),
    };
    let others = pins.other_maps()?;
    let gap = match (gap, others.is_empty()) {
        (Some(why), _) => Some(format!("{why:#}")),
        (None, false) => {
            Some("the version before this one keeps its counts in another form".into())
        }
        (None, true) => None,
    };
    let totals = others.into_iter().chain([pins.maps()]);
    let totals = totals.filter_map(|maps| Some(read(&maps).ok()?.totals)).max_by_key(Vec::len);
    pins.clear()?;
    pins.new_maps()?;
    for name in kept::MAPS {
        let map = new.map(name).with_context(|| format!("this build has no map `{name}`"))?;
        map.pin(pins.maps().join(name)).with_context(|| format!("pinning `{name}`"))?;
    }
    Ok(Inherited { totals: totals.unwrap_or_default(), gap, ..Inherited::default() })
}

/// Why the probes were not all attached, if they were not.
fn detached(pins: &Pins) -> Result<Option<String>> {
    let words = words(&pins.maps().join(kept::KEPT))?;
    if words.get(&kept::ACTIVE, 0)? == 0 {
        return Ok(None);
    }
    let mut most = 0;
    for hooks in pins.hooks()? {
        most = fs::read_dir(hooks)?.count().saturating_sub(Rest::ALL.len()).max(most);
    }
    let wanted = words.get(&kept::HOOKS, 0)?;
    Ok(((most as u64) < wanted).then(|| format!("{most} of {wanted} hooks were still attached")))
}

/// Detaches the pinned hooks. The tables that their programs use are removed after that.
fn detach(hooks: &Path) -> Result<()> {
    let mut links = Vec::new();
    for entry in fs::read_dir(hooks).with_context(|| format!("{}", hooks.display()))? {
        let name = entry?.file_name();
        if Rest::ALL.iter().any(|rest| name == rest.table) {
            continue;
        }
        let link = PinnedLink::from_pin(hooks.join(name)).context("opening a pinned hook")?;
        links.push(link.unpin().context("removing a pinned hook")?);
    }
    drop_at_once(links);
    podstuck_confine::pins::remove(hooks)
}

fn words(path: &Path) -> Result<Array<MapData, u64>> {
    let map = MapData::from_pin(path).with_context(|| format!("opening {}", path.display()))?;
    let of_kind = Array::try_from(Map::Array(map));
    of_kind.with_context(|| format!("{} is no array of words", path.display()))
}

/// Whether these maps are pinned there; false if there are none.
fn matching(directory: &Path, wanted: &Ebpf) -> Result<bool> {
    if !directory.try_exists()? {
        return Ok(false);
    }
    for name in kept::MAPS {
        let path = directory.join(name);
        let found = MapInfo::from_pin(&path);
        let found = found.with_context(|| format!("{} cannot be opened", path.display()))?;
        let wanted = info(wanted, name)?;
        let of = |info: &MapInfo| {
            let sizes = (info.key_size(), info.value_size(), info.max_entries(), info.map_flags());
            anyhow::Ok((info.map_type()? as u32, sizes))
        };
        let (found, wanted) = (of(&found)?, of(&wanted)?);
        ensure!(found == wanted, "{} has another form: {found:?}, not {wanted:?}", path.display());
    }
    Ok(true)
}

fn info(ebpf: &Ebpf, name: &str) -> Result<MapInfo> {
    let map = match ebpf.map(name) {
        Some(
            Map::Array(map) | Map::HashMap(map) | Map::LruHashMap(map) | Map::PerCpuArray(map),
        ) => map,
        _ => bail!("this build has no map `{name}`"),
    };
    Ok(map.info()?)
}

/// The totals and the losses. A map that was only created has none.
fn read(directory: &Path) -> Result<Inherited> {
    let words = words(&directory.join(kept::KEPT))?;
    let losses = directory.join("LOSSES");
    let of_kinds = MapData::from_pin(&losses).ok();
    let of_kinds =
        of_kinds.and_then(|map| PerCpuArray::<_, u64>::try_from(Map::PerCpuArray(map)).ok());
    let sum = |kind| Some(of_kinds.as_ref()?.get(&kind, 0).ok()?.iter().sum());
    let losses = (0..loss::COUNT).map(|kind| sum(kind).unwrap_or_default()).collect();
    let word = |index: usize| words.get(&(index as u32), 0).context("reading `KEPT`");
    let first = match word(kept::VALID as usize)? {
        0 => return Ok(Inherited { losses, ..Inherited::default() }),
        copy @ 1..=2 => kept::HEAD + (copy as usize - 1) * kept::COPY,
        other => bail!("there is no copy {other} of the totals"),
    };
    let len = usize::try_from(word(first)?)?;
    ensure!(len <= kept::TEXT, "the totals have {len} bytes");
    let mut totals = Vec::with_capacity(len + 8);
    for index in 0..len.div_ceil(8) {
        totals.extend(word(first + 2 + index)?.to_ne_bytes());
    }
    totals.truncate(len);
    let unsaved = word(kept::UNSAVED as usize)? != 0;
    let gap = unsaved.then(|| "it ended while it read many counts".to_owned());
    Ok(Inherited { totals, losses, gap })
}
