import { execFileSync } from "node:child_process";
import { chmodSync, lchownSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { findConfiguration, serviceDirectoryOf } from "../../src/config/load.ts";
import { linesOf } from "./support.ts";

/** Changing an owner takes root. */
const isRoot = process.geteuid?.() === 0;
const somebodyElse = 12_345;

/** A directory in which every place of the search has a file; each says which one it is. */
function everywhere(t: Test) {
  const cwd = t.testdir({
    "gateway.toml": "local",
    "named.toml": "named",
    "other.toml": "other",
    home: { "gateway.toml": "service" },
  });
  chmodSync(join(cwd, "gateway.toml"), 0o644);
  return { cwd, env: { GATEHOUSE_HOME: "home", GATEHOUSE_CONFIG: "other.toml" } };
}

function contentOf({ bytes }: { bytes: Uint8Array }): string {
  return new TextDecoder().decode(bytes);
}

t.test("the file is taken from --config, the environment, here, the service directory", (t) => {
  const { cwd, env } = everywhere(t);
  const { GATEHOUSE_HOME } = env;
  t.match(findConfiguration({ config: "named.toml", cwd, env }), { file: join(cwd, "named.toml") });
  t.match(findConfiguration({ cwd, env }), { file: join(cwd, "other.toml"), warnings: [] });
  t.equal(contentOf(findConfiguration({ cwd, env: { GATEHOUSE_HOME } })), "local");
  const elsewhere = join(cwd, "home");
  t.equal(contentOf(findConfiguration({ cwd: join(cwd, "home"), env: {} })), "service");
  const fromService = findConfiguration({ cwd: "/", env: { GATEHOUSE_HOME: elsewhere } });
  t.match(fromService, { file: join(elsewhere, "gateway.toml") });
  t.equal(contentOf(fromService), "service");
  t.match(findConfiguration({ cwd: "/", env: { HOME: cwd } }), { file: undefined, warnings: [] });
  t.end();
});

t.test("a file that was named and is not there is an error", (t) => {
  const { cwd, env } = everywhere(t);
  t.strictSame(
    linesOf(() => findConfiguration({ config: "gone.toml", cwd, env })),
    [`${cwd}/gone.toml: does not exist, and --config names it`],
  );
  t.strictSame(
    linesOf(() => findConfiguration({ cwd, env: { ...env, GATEHOUSE_CONFIG: "gone.toml" } })),
    [`${cwd}/gone.toml: does not exist, and $GATEHOUSE_CONFIG names it`],
  );
  t.strictSame(
    linesOf(() => findConfiguration({ config: "home", cwd, env })),
    [`${cwd}/home: cannot be read (EISDIR)`],
  );
  t.end();
});

t.test("an empty variable counts as unset", (t) => {
  const { cwd } = everywhere(t);
  const env = { GATEHOUSE_CONFIG: "", GATEHOUSE_HOME: "", HOME: "/nowhere" };
  t.equal(contentOf(findConfiguration({ cwd, env })), "local");
  t.equal(serviceDirectoryOf({ cwd, env }), "/nowhere/.gatehouse");
  t.end();
});

t.test("a local file that group or others may write is passed over with a warning", (t) => {
  const { cwd } = everywhere(t);
  const file = join(cwd, "gateway.toml");
  for (const mode of [0o664, 0o646, 0o666]) {
    chmodSync(file, mode);
    const found = findConfiguration({ cwd, env: { GATEHOUSE_HOME: "home" } });
    t.equal(contentOf(found), "service");
    t.strictSame(found.warnings, [
      `${file} is passed over, since its group or others may write it; to use it: chmod go-w ${file}`,
    ]);
  }
  t.end();
});

t.test("a local file of somebody else is passed over with a warning", { skip: !isRoot }, (t) => {
  const { cwd } = everywhere(t);
  const file = join(cwd, "gateway.toml");
  lchownSync(file, somebodyElse, somebodyElse);
  const found = findConfiguration({ cwd, env: { GATEHOUSE_HOME: "home" } });
  t.equal(contentOf(found), "service");
  t.strictSame(found.warnings, [
    `${file} is passed over, since it belongs to somebody else; to use it: chown -h 0 ${file}`,
  ]);
  t.end();
});

t.test("somebody else's link to an own file is passed over too", { skip: !isRoot }, (t) => {
  const cwd = t.testdir({ "own.toml": "own" });
  chmodSync(join(cwd, "own.toml"), 0o600);
  symlinkSync("own.toml", join(cwd, "gateway.toml"));
  const env = { GATEHOUSE_HOME: "home" };
  t.equal(contentOf(findConfiguration({ cwd, env })), "own");
  lchownSync(join(cwd, "gateway.toml"), somebodyElse, somebodyElse);
  const found = findConfiguration({ cwd, env });
  t.equal(found.file, undefined);
  t.match(found.warnings, [/since it belongs to somebody else/]);
  t.end();
});

t.test("a directory or a pipe of that name is passed over without waiting", (t) => {
  const cwd = t.testdir();
  mkdirSync(join(cwd, "directory", "gateway.toml"), { recursive: true });
  mkdirSync(join(cwd, "pipe"));
  execFileSync("mkfifo", ["-m", "600", join(cwd, "pipe", "gateway.toml")]);
  for (const name of ["directory", "pipe"]) {
    const found = findConfiguration({ cwd: join(cwd, name), env: { GATEHOUSE_HOME: "home" } });
    t.equal(found.file, undefined);
    t.match(found.warnings, [/since it is no regular file/]);
  }
  t.end();
});

t.test("a link that leads nowhere counts as no file", (t) => {
  const cwd = t.testdir();
  symlinkSync("gone", join(cwd, "gateway.toml"));
  t.match(findConfiguration({ cwd, env: { GATEHOUSE_HOME: "home" } }), { warnings: [] });
  writeFileSync(join(cwd, "gone"), "here", { mode: 0o600 });
  t.equal(contentOf(findConfiguration({ cwd, env: { GATEHOUSE_HOME: "home" } })), "here");
  t.end();
});
