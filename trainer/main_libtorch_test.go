//go:build libtorch

package trainer

import "agentcli/internal/torch/testdevice"

func init() { testdevice.FromEnvironment() }
