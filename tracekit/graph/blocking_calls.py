"""Names of the runtime and driver calls that can block until the GPU has caught up, or that manage memory.

They are CUDA's, HIP's, and those of Intel's Unified Runtime and Level Zero. Copies block too, but they launch an
activity and are treated as launches. Programs built for a default stream per thread use names that end in ``_ptsz``
(HIP: ``_spt``).
"""

DEVICE_WAIT_CALLS = r"^(cudaDeviceSynchronize|hipDeviceSynchronize|cuCtxSynchronize|zeContextSynchronize)$"
DEVICE_SYNC_CALLS = rf"{DEVICE_WAIT_CALLS}|^(cudaFree|hipFree)$"
STREAM_SYNC_CALLS = (
    r"^(cudaStreamSynchronize|hipStreamSynchronize|cuStreamSynchronize)(_ptsz|_spt)?$"
    r"|^(urQueueFinish|zeCommandQueueSynchronize|zeCommandListHostSynchronize)$"
)
EVENT_SYNC_CALLS = (
    r"^(cudaEventSynchronize|hipEventSynchronize|cuEventSynchronize)$"
    r"|^(urEventWait|zeEventHostSynchronize|zeFenceHostSynchronize)$"
)
WAIT_CALLS = "|".join((DEVICE_WAIT_CALLS, STREAM_SYNC_CALLS, EVENT_SYNC_CALLS))
"""Calls that do nothing but wait; freeing memory is work besides."""
BLOCKING_CALLS = "|".join((DEVICE_SYNC_CALLS, STREAM_SYNC_CALLS, EVENT_SYNC_CALLS))
ROCM_CLOCK_ERROR_NS = 10_000
"""Up to which ROCm's clocks of GPU and CPU disagree in good traces: a device synchronisation of
mi300x_qwen15_05b_inference returns 8.1 us before its kernel ends."""
ALLOCATION_CALLS = (
    r"^(cuda|hip|hipExt|hipHost)(Malloc|Free)|^(cuda|hip)Host(Alloc|Register|Unregister)"
    r"|^cuMem(Alloc|Free|HostAlloc|HostRegister|HostUnregister|Create|Release|Map|Unmap|SetAccess|AddressReserve)"
)
