#pragma once
#ifdef __cplusplus
extern "C" {
#endif
void agt_test_device_load(void);
// How many there were: 0 flash, 1 efficient, 2 operations, 3 copies from or to the host, and numbers that it waits for, 4 our kernels,
// 5 bytes from the host.
long agt_test_device_calls(int what);
void agt_test_device_kernels(int on);     // whether it has our kernels
// The next memory that is asked for is an error with this text.
void agt_test_device_fail(const char *text);
// From now on at most so many bytes more are given (0: any number). It returns how many more
// than now were taken at once since the last call.
long agt_test_device_memory(long bytes);
#ifdef __cplusplus
}
#endif
