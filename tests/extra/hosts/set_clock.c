/* Steps the clock of a guest, lets it gain, and says how far it may be off, as those do who keep clocks. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/timex.h>

int main(int count, char **words)
{
	if (count != 4) {
		fprintf(stderr, "set_clock STEP_NS GAIN_PPM ERROR_US\n");
		return 1;
	}
	long long step = atoll(words[1]);
	struct timex clock = {.modes = ADJ_SETOFFSET | ADJ_NANO};
	clock.time.tv_sec = step / 1000000000;
	clock.time.tv_usec = step % 1000000000;
	if (clock.time.tv_usec < 0) {
		clock.time.tv_sec--;
		clock.time.tv_usec += 1000000000;
	}
	if (adjtimex(&clock) < 0) {
		perror("step");
		return 1;
	}
	struct timex kept = {.modes = ADJ_FREQUENCY | ADJ_MAXERROR | ADJ_ESTERROR | ADJ_STATUS};
	kept.freq = atol(words[2]) * 65536;
	kept.maxerror = kept.esterror = atol(words[3]);
	if (adjtimex(&kept) < 0) {
		perror("gain");
		return 1;
	}
	return 0;
}
