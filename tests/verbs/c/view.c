/* Reads the file `node_type` of a shown device by every way of the C library that leads there, and looks at what
 * functions that return paths say. Argument: the device. Prints each way that fails. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static int failures;
static const char *way;
static char device[128], file[256];

static void check(int good, const char *what)
{
    if (!good) {
        printf("%s: %s: %s\n", way, what, strerror(errno));
        failures++;
    }
    errno = 0;
}
#define CHECK(good) check(!!(good), #good)

static int holds(int fd)
{
    char text[16] = "";
    int good = fd >= 0 && read(fd, text, sizeof text - 1) > 2 && text[1] == ':';
    if (fd >= 0)
        close(fd);
    return good;
}

static int same(char *text, const char *expected)
{
    int good = text && !strcmp(text, expected);
    if (text && !good)
        printf("%s, not %s\n", text, expected);
    free(text);
    return good;
}

static int lists(DIR *directory)
{
    int found = 0;
    if (!directory)
        return 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        found |= !strcmp(entry->d_name, "node_type");
    closedir(directory);
    return found;
}

static int scanned(int at, const char *directory)
{
    struct dirent **list;
    int found = 0;
    int count = at == AT_FDCWD ? scandir(directory, &list, NULL, alphasort)
                               : scandirat(at, directory, &list, NULL, alphasort);
    for (int entry = 0; entry < count; entry++) {
        found |= !strcmp(list[entry]->d_name, "node_type");
        free(list[entry]);
    }
    if (count >= 0)
        free(list);
    return found;
}

static int walked;

static int visit(const char *path, const struct stat *status, int kind)
{
    walked |= kind == FTW_F && status->st_size > 0 && strstr(path, "node_type");
    return 0;
}

static int visit_more(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)where;
    return visit(path, status, kind);
}

static int tree(char *path)
{
    char *paths[] = {path, NULL};
    int found = 0;
    FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (!fts)
        return 0;
    for (FTSENT *entry; (entry = fts_read(fts));)
        found |= entry->fts_info == FTS_F && !strcmp(entry->fts_name, "node_type");
    fts_close(fts);
    return found;
}

static int matches(const char *pattern)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found))
        return 0;
    int good = found.gl_pathc == 1 && !strcmp(strrchr(found.gl_pathv[0], '/'), "/node_type")
        && holds(open(found.gl_pathv[0], O_RDONLY));
    globfree(&found);
    return good;
}

/* By these names of the file and its directory, which may be relative to `at`. */
static void by_name(int at, const char *name, char *directory)
{
    struct stat status;
    struct statx more;
    struct statfs system;
    struct statvfs volume;
    char pattern[PATH_MAX + 8], to[PATH_MAX], resolved[PATH_MAX];
    CHECK(holds(openat(at, name, O_RDONLY)));
    CHECK(!fstatat(at, name, &status, 0) && status.st_size > 0);
    CHECK(!statx(at, name, 0, STATX_SIZE, &more) && more.stx_size > 0);
    CHECK(!faccessat(at, name, R_OK, 0));
    CHECK(readlinkat(at, name, to, sizeof to) == -1 && errno == EINVAL);
    CHECK(scanned(at, directory));
    int fd = openat(at, directory, O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0 && holds(openat(fd, "node_type", O_RDONLY)));
    CHECK(lists(fdopendir(fd)));
    if (at != AT_FDCWD)
        return;
    CHECK(holds(open(name, O_RDONLY)));
    FILE *stream = fopen(name, "r");
    CHECK(stream && fgetc(stream) != EOF);
    stream = stream ? freopen(name, "r", stream) : NULL;
    CHECK(stream && fgetc(stream) != EOF);
    if (stream)
        fclose(stream);
    CHECK(!stat(name, &status) && S_ISREG(status.st_mode));
    CHECK(!lstat(name, &status) && S_ISREG(status.st_mode));
    CHECK(!statfs(name, &system) && !statvfs(name, &volume));
    CHECK(!access(name, R_OK) && !eaccess(name, R_OK) && !euidaccess(name, R_OK));
    CHECK(readlink(name, to, sizeof to) == -1 && errno == EINVAL);
    CHECK(getxattr(name, "user.none", to, 1) == -1 && errno != ENOENT);
    CHECK(lgetxattr(name, "user.none", to, 1) == -1 && errno != ENOENT);
    CHECK(listxattr(name, NULL, 0) >= 0 && llistxattr(name, NULL, 0) >= 0);
    CHECK(same(realpath(name, NULL), file));
    CHECK(realpath(directory, resolved) == resolved && !strcmp(resolved, device));
    CHECK(same(canonicalize_file_name(name), file));
    CHECK(lists(opendir(directory)));
    CHECK(tree(directory));
    walked = 0;
    CHECK(!ftw(directory, visit, 8) && walked);
    walked = 0;
    CHECK(!nftw(directory, visit_more, 8, FTW_PHYS) && walked);
    snprintf(pattern, sizeof pattern, "%s/node_t*", directory);
    CHECK(matches(pattern));
}

static void within(void)
{
    char here[PATH_MAX];
    CHECK(getcwd(here, sizeof here) && !strcmp(here, device));
    CHECK(same(getcwd(NULL, 0), device));
    CHECK(same(get_current_dir_name(), device));
    CHECK(same(realpath(".", NULL), device));
    by_name(AT_FDCWD, "node_type", ".");
    by_name(AT_FDCWD, "./ports/../node_type", "ports/..");
}

int main(int count, char **arguments)
{
    char part[512], at[256];
    const char *name = count > 1 ? arguments[1] : "";
    snprintf(device, sizeof device, "/sys/class/infiniband/%s", name);
    snprintf(file, sizeof file, "%s/node_type", device);
    way = "by the whole path";
    by_name(AT_FDCWD, file, device);
    way = "with more separators";
    snprintf(at, sizeof at, "/sys/./class//infiniband/%s", name);
    snprintf(part, sizeof part, "%s/node_type", at);
    by_name(AT_FDCWD, part, at);
    static const char *const above[][2] = {
        {"/", "sys/class/infiniband"}, {"/sys", "class/infiniband"}, {"/sys/class", "./infiniband"}};
    for (int row = 0; row < 3; row++) {
        int fd = open(above[row][0], O_RDONLY | O_DIRECTORY);
        snprintf(at, sizeof at, "%s/%s", above[row][1], name);
        snprintf(part, sizeof part, "%s/node_type", at);
        way = "from a descriptor above";
        by_name(fd, part, at);
        way = "from a directory above";
        CHECK(!fchdir(fd));
        by_name(AT_FDCWD, part, at);
        close(fd);
    }
    way = "within the directory";
    CHECK(!chdir(device));
    within();
    way = "after fchdir";
    int fd = open(device, O_RDONLY | O_DIRECTORY);
    CHECK(!chdir("/") && !fchdir(fd));
    within();
    way = "from a descriptor within";
    CHECK(!chdir("/"));
    by_name(fd, "node_type", ".");
    /* What is not shown stays as it is. */
    way = "elsewhere";
    CHECK(!chdir("/sys/class") && same(getcwd(NULL, 0), "/sys/class"));
    CHECK(open("infiniband/none", O_RDONLY) == -1 && errno == ENOENT);
    CHECK(open("/sys/class/infinibandx", O_RDONLY) == -1 && errno == ENOENT);
    CHECK(chdir("/tmp") == 0 && open("infiniband/none", O_RDONLY) == -1 && errno == ENOENT);
    return failures != 0;
}
