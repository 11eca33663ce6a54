import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { isReadOnlyIn, permissionProblem, shellQuoted } from "../../src/files/guarded.ts";
import { temporaryDirectory } from "../config/support.ts";

const mounts = `\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 21 0:35 / /run/my\\040secret ro,relatime - tmpfs tmpfs rw
41 21 0:36 / /image rw - squashfs /dev/loop0 ro,errors=continue
42 21 0:37 / /image/data rw - ext4 /dev/sdb rw
43 21 0:38 / /twice rw - tmpfs tmpfs rw
44 43 0:39 / /twice ro - tmpfs tmpfs rw
`;

t.test("a read-only mount is told from the nearest mount above the file", (t) => {
  t.equal(isReadOnlyIn(mounts, "/etc/key"), false);
  t.equal(isReadOnlyIn(mounts, "/run/my secret/key"), true);
  t.equal(isReadOnlyIn(mounts, "/run/my secretive/key"), false);
  t.equal(isReadOnlyIn(mounts, "/image/key"), true, "the file system itself is read-only");
  t.equal(isReadOnlyIn(mounts, "/image/data/key"), false, "a writable mount lies on top");
  t.equal(isReadOnlyIn(mounts, "/twice/key"), true, "the later of two mounts is in force");
  t.equal(isReadOnlyIn("", "/etc/key"), false, "what is unknown is not read-only");
  t.end();
});

t.test("a file is private unless group or others write it or others read it", (t) => {
  const path = join(temporaryDirectory(t), "key");
  writeFileSync(path, "");
  const stats = statSync(path);
  const isPrivate = (mode: number) => {
    stats.mode = 0o100000 | mode;
    return permissionProblem(path, stats, true) === undefined;
  };
  for (const mode of [0o600, 0o400, 0o640, 0o700]) t.ok(isPrivate(mode), mode.toString(8));
  for (const mode of [0o620, 0o602, 0o604, 0o644, 0o666])
    t.notOk(isPrivate(mode), mode.toString(8));
  t.end();
});

t.test("a path in a command is one word of the shell", (t) => {
  t.equal(shellQuoted("/etc/gatehouse/key.pem"), "/etc/gatehouse/key.pem");
  t.equal(shellQuoted("a b"), "'a b'");
  t.equal(shellQuoted("it's; rm"), "'it'\\''s; rm'");
  t.end();
});
