"""Runtime and driver calls by name: those that can block until the GPU has caught up, and those that get memory.

Copies block too, but those launch something. Of programs built for a default stream per thread, names end in ``_ptsz``
(HIP: ``_spt``).
"""

WAITS_FOR_ALL = r"^(cudaDeviceSynchronize|hipDeviceSynchronize|cuCtxSynchronize|cudaFree|hipFree)$"
WAITS_FOR_STREAM = r"^(cudaStreamSynchronize|hipStreamSynchronize|cuStreamSynchronize)(_ptsz|_spt)?$"
WAITS_FOR_EVENT = r"^(cudaEventSynchronize|hipEventSynchronize|cuEventSynchronize)$"
CAN_WAIT = "|".join((WAITS_FOR_ALL, WAITS_FOR_STREAM, WAITS_FOR_EVENT))
ALLOCATES = (
    r"^(cuda|hip|hipExt|hipHost)(Malloc|Free)|^(cuda|hip)Host(Alloc|Register|Unregister)"
    r"|^cuMem(Alloc|Free|HostAlloc|HostRegister|HostUnregister|Create|Release|Map|Unmap|SetAccess|AddressReserve)"
)
