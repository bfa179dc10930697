// Powers the guest off: process 1 must not end, and the host may have no `halt`.
#include <sys/reboot.h>
#include <unistd.h>

int main(void)
{
	sync();
	return reboot(RB_POWER_OFF);
}
