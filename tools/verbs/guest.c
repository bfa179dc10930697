// What the guest's process 1 needs and the host may have no program for.
// guest seed < FILE: the random numbers that getrandom(2) waits for; a guest without devices gathers none.
// guest halt: power off; process 1 must not end.
#include <linux/random.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <unistd.h>
#include <fcntl.h>

static int seed(void)
{
	struct {
		struct rand_pool_info info;
		char bytes[64];
	} entropy;
	ssize_t got = read(0, entropy.bytes, sizeof entropy.bytes);
	int device = open("/dev/urandom", O_WRONLY);
	if (got <= 0 || device < 0)
		return 1;
	entropy.info.entropy_count = (int)got * 8;
	entropy.info.buf_size = (int)got;
	return ioctl(device, RNDADDENTROPY, &entropy) != 0;
}

int main(int count, char **arguments)
{
	if (count == 2 && !strcmp(arguments[1], "seed"))
		return seed();
	sync();
	return reboot(RB_POWER_OFF);
}
