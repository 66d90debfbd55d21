"""Runtime calls that can block until the GPU has caught up, by name. Copies block too, but those launch something."""

WAITS_FOR_ALL = r"^(cudaDeviceSynchronize|hipDeviceSynchronize|cuCtxSynchronize|cudaFree|hipFree)$"
WAITS_FOR_STREAM = r"^(cudaStreamSynchronize|hipStreamSynchronize|cuStreamSynchronize)$"
WAITS_FOR_EVENT = r"^(cudaEventSynchronize|hipEventSynchronize|cuEventSynchronize)$"
CAN_WAIT = "|".join((WAITS_FOR_ALL, WAITS_FOR_STREAM, WAITS_FOR_EVENT))
