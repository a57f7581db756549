"""Corruptions as single kernels on a GPU, bit for bit what the plain operations give.

Plain operations read and write a whole batch for every addition. A kernel of Triton (which a CUDA
build of torch brings along) does in one pass what takes them thirty. There are few of them, for
what is dear: each takes a second to compile once per machine.

`Kernel` stands in front of every one. Its first result in a process is compared with that of the
plain operations; where they differ, or the kernel does not run, the plain operations stay.
"""
