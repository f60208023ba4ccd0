//go:build libtorch

package policy

import "golang.org/x/sys/cpu"

// hasBF16 reports whether the processor multiplies bfloat16 in hardware; on
// others bfloat16 is slower than float32.
func hasBF16() bool { return cpu.X86.HasAVX512BF16 || cpu.X86.HasAMXBF16 }

// packsBF16 reports whether oneDNN packs matrices of bfloat16 on the processor; on others libtorch's
// plain product takes them.
func packsBF16() bool { return cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ }
