/* Runs a network that `lightnet compile --emit=obj,header` made, on an input from a file, and compares the output with another.

   usage: main X.npy Y.npy        exit status: 0 if the output agrees with Y, 1 if not, 2 if a file cannot be read */

#include "net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads `count` floats behind the header of an .npy file (version 1: 10 bytes, of which the last two are the length of the rest). */
static int read_npy(const char *path, float *values, size_t count)
{
    unsigned char head[10];
    FILE *file = fopen(path, "rb");
    int ok = file != NULL && fread(head, 1, sizeof head, file) == sizeof head && memcmp(head, "\x93NUMPY\x01", 7) == 0
        && fseek(file, (long)sizeof head + head[8] + 256 * head[9], SEEK_SET) == 0
        && fread(values, sizeof *values, count, file) == count;

    if (file != NULL)
        fclose(file);
    if (!ok)
        fprintf(stderr, "cannot read %lu floats from %s\n", (unsigned long)count, path);
    return ok;
}

int main(int argc, char **argv)
{
    static float x[NET_IN_PICTURE_COUNT], y[NET_OUT_CLASSES_COUNT], expected[NET_OUT_CLASSES_COUNT];
    /* C99 has no aligned allocation: take what is too much, and begin at a multiple of the alignment. */
    unsigned char *memory = malloc(NET_ARENA_BYTES + NET_ARENA_ALIGN);
    unsigned char *arena = memory + (NET_ARENA_ALIGN - (uintptr_t)memory % NET_ARENA_ALIGN) % NET_ARENA_ALIGN;
    float worst = 0, largest = 0;
    size_t i;
    int status;

    if (memory == NULL || argc != 3 || !read_npy(argv[1], x, NET_IN_PICTURE_COUNT)
        || !read_npy(argv[2], expected, NET_OUT_CLASSES_COUNT)) {
        free(memory);
        return 2;
    }
    status = net_run(arena, x, y);
    for (i = 0; i < NET_OUT_CLASSES_COUNT; i++) {
        const float off = fabsf(y[i] - expected[i]), size = fabsf(expected[i]);
        worst = off > worst ? off : worst;
        largest = size > largest ? size : largest;
    }
    printf("status %d, largest difference %g, largest value %g\n", status, worst, largest);
    free(memory);
    return status != NET_OK || !(worst <= 1e-5f * largest);
}
