#pragma once
#ifdef __cplusplus
extern "C" {
#endif
void agt_test_device_load(void);
long agt_test_device_calls(int what);  // 0 flash, 1 efficient, 2 operations, 3 copies from or to the host, 4 our kernels
void agt_test_device_kernels(int on);     // whether it has our kernels
#ifdef __cplusplus
}
#endif
