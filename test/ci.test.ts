import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import t, { type Test } from "tap";
import { temporaryHome } from "./kit/gateway.ts";

const root = fileURLToPath(new URL("..", import.meta.url));

const good = 'import t from "tap"; t.pass("it holds");';
const bad = 'import t from "tap"; t.fail("it never holds");';
/** Fails in its first run. */
const fragile = `import { existsSync, writeFileSync } from "node:fs";
import t from "tap";
const isSecond = existsSync("ran");
writeFileSync("ran", "");
t.ok(isSecond, "it holds at times");`;

/** Runs `.ci/run` in a project with these test files. */
async function run(t: Test, files: Readonly<Record<string, string>>) {
  const directory = temporaryHome(t);
  for (const name of [".ci", "test"]) mkdirSync(path.join(directory, name));
  for (const name of [".ci/run", ".taprc"]) {
    copyFileSync(path.join(root, name), path.join(directory, name));
  }
  symlinkSync(path.join(root, "node_modules"), path.join(directory, "node_modules"));
  const others = {
    ".ci/programs": "",
    "package.json": '{ "type": "module" }',
    "README.md": "## Work on it\n\n```sh\nnpx tap run\n```\n",
  };
  for (const [name, content] of Object.entries({ ...others, ...files })) {
    writeFileSync(path.join(directory, name), content);
  }
  // Otherwise the inner runner would take itself for a part of the outer one.
  const own = Object.entries(process.env).filter(([name]) => !/^(_?TAP|NODE_OPTIONS$)/.test(name));
  const child = spawn("bash", [".ci/run"], { cwd: directory, env: Object.fromEntries(own) });
  const closed = once(child, "close");
  const [output] = await Promise.all([text(child.stdout), text(child.stderr)]);
  await closed;
  return { output, code: child.exitCode };
}

t.test("a test file that passes only at the second run is counted and named", async (t) => {
  const { output, code } = await run(t, { "test/a.test.ts": good, "test/b.test.ts": fragile });
  t.equal(code, 0);
  const [, summary] = output.split(/^(?=files that passed only)/m);
  t.equal(
    summary,
    `files that passed only at a second chance, alone: 1
- test/b.test.ts
    not ok 1 - it holds at times
2 passed, 0 failed
`,
  );
});

t.test("a test file that fails twice fails the run", async (t) => {
  const { output, code } = await run(t, { "test/a.test.ts": good, "test/b.test.ts": bad });
  t.equal(code, 1);
  t.match(output, /^what failed:$/m);
  t.match(output, /only at a second chance, alone: 0\n1 passed, 1 failed\n$/);
});
