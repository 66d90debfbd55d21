"""Writes Kineto's events as PyTorch's profiler writes a ``.pftrace``: threads' slices, and GPUs' render stages."""

from collections import defaultdict

from tracekit.ingest.formats.perfetto_packets import load_messages

STAGES = {"kernel": (1, "Kernel"), "gpu_memcpy": (2, "Memcpy"), "gpu_memset": (3, "Memset")}
ARGUMENTS = ("registers_per_thread", "shared_mem_dynamic")
EXTRAS = {"device": "device id", "stream": "stream id"}


class PerfettoBuilder:
    """Builds a trace; as in PyTorch's, all slices of a kind begin before the first of them ends."""

    def __init__(self):
        self.trace = load_messages()["Trace"]()
        first = self.packet(sequence_flags=1)
        self.texts = first.interned_data
        for iid, name in STAGES.values():
            self.texts.gpu_specifications.add(iid=iid, name=name)
        for iid, name in enumerate(ARGUMENTS, 1):
            self.texts.compute_arg_names.add(iid=iid, name=name)
        self.numbers = defaultdict(dict)
        self.tracks = {}

    def packet(self, **fields):
        return self.trace.packet.add(trusted_packet_sequence_id=1, **fields)

    def number(self, table, name):
        """Return the number of a text, from 1."""
        known = self.numbers[table]
        if name not in known:
            known[name] = len(known) + 1
            getattr(self.texts, table).add(iid=known[name], name=name)
        return known[name]

    def track(self, pid, tid):
        if (pid, tid) not in self.tracks:
            self.tracks[pid, tid] = len(self.tracks) + 1
            thread = self.packet().track_descriptor
            thread.uuid = self.tracks[pid, tid]
            thread.thread.pid, thread.thread.tid, thread.thread.thread_name = pid, tid, f"thread {tid}"
        return self.tracks[pid, tid]

    def add_slices(self, events, *, with_category=True):
        for event in events:
            track = self.track(event["pid"], event["tid"])
            slice_ = self.packet(timestamp=to_ns(event["ts"])).track_event
            slice_.type, slice_.track_uuid = 1, track
            slice_.name_iid = self.number("event_names", event["name"])
            if with_category:
                slice_.category_iids.append(self.number("event_categories", event["cat"]))
            number = {"cbid": 211} if event["cat"] == "cuda_runtime" else {}
            for name, value in (event.get("args", {}) | number).items():
                set_value(slice_.debug_annotations.add(name=name), value)
        for event in events:
            slice_ = self.packet(timestamp=to_ns(event["ts"]) + to_ns(event["dur"])).track_event
            slice_.type, slice_.track_uuid = 2, self.track(event["pid"], event["tid"])

    def add_stage(self, event):
        stage = self.packet(timestamp=to_ns(event["ts"])).gpu_render_stage_event
        stage.duration, stage.gpu_id = to_ns(event["dur"]), event["args"]["device"]
        stage.stage_iid = STAGES[event["cat"]][0]
        args = dict(event["args"])
        if event["cat"] == "kernel":
            stage.name_iid = self.number("event_names", event["name"])
            for name, sizes in (("grid", stage.launch.grid_size), ("block", stage.launch.workgroup_size)):
                sizes.x, sizes.y, sizes.z = args.pop(name)
            for iid, key in ((1, "registers per thread"), (2, "shared memory")):
                stage.launch.args.add(name_iid=iid, uint_value=args.pop(key, 0))
        for name, value in args.items():
            stage.extra_data.add(name=EXTRAS.get(name, name), value=str(value))


def to_ns(us):
    return round(us * 1000)


def set_value(note, value):
    if isinstance(value, list):
        note.array_values.extend([type(note)() for _ in value])
        for part, one in zip(note.array_values, value, strict=True):
            set_value(part, one)
    elif isinstance(value, str):
        note.string_value = value
    else:
        note.int_value = value


def write(path, events, **options):
    """Write the events of a trace; what ran on a GPU becomes render stages."""
    builder = PerfettoBuilder()
    by_kind = defaultdict(list)
    for event in events:
        by_kind[event.get("cat")].append(event)
    for kind, found in by_kind.items():
        if kind in STAGES:
            for event in found:
                builder.add_stage(event)
        elif kind is not None and found[0]["ph"] == "X":
            builder.add_slices(found, **options)
    path.write_bytes(builder.trace.SerializeToString())
    return path
