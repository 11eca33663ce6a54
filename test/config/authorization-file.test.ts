import { execFileSync } from "node:child_process";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { load, problemsOf, temporaryDirectory } from "./support.ts";

function secret(t: Test, content: string, mode: number): string {
  const file = join(temporaryDirectory(t), "credential");
  writeFileSync(file, content);
  chmodSync(file, mode);
  return file;
}

function configured(file: string, rest = ""): string {
  return `[upstream]\nauthorization_file = ${JSON.stringify(file)}\n${rest}`;
}

t.test("the credential is read without the space around it", (t) => {
  const file = secret(t, "\nBearer hunter2 \n", 0o600);
  const { upstream } = load(t, configured(file)).configuration;
  t.equal(upstream.authorization, "Bearer hunter2");
  t.equal(upstream.authorization_file, file);
  t.end();
});

t.test("the MCP server's credential is read in the same way, and is another one", (t) => {
  const file = secret(t, "Bearer of-mcp\n", 0o600);
  const text = `[upstream]\nauthorization = "Bearer of-database"\n[mcp]\nauthorization_file = ${JSON.stringify(file)}\n`;
  const { upstream, mcp } = load(t, text).configuration;
  t.equal(mcp.authorization, "Bearer of-mcp");
  t.equal(upstream.authorization, "Bearer of-database");
  const [problem] = problemsOf(t, text.replace(file, secret(t, "Bearer of-mcp", 0o604)));
  t.match(problem, /mcp\.authorization_file: .*a file that is kept from others/);
  t.end();
});

t.test("a credential that others may read stops the start, unless that is accepted", (t) => {
  const file = secret(t, "Bearer hunter2", 0o604);
  const [problem = ""] = problemsOf(t, configured(file));
  t.match(
    problem,
    `a file that is kept from others; others may read it, so run: chmod 600 ${file}`,
  );
  t.notMatch(problem, "hunter2");
  const accepted = configured(file, "[auth]\ncheck_permissions = false\n");
  t.equal(load(t, accepted).configuration.upstream.authorization, "Bearer hunter2");
  t.end();
});

t.test("a credential that its group or others may write stops the start in any case", (t) => {
  const file = secret(t, "Bearer hunter2", 0o620);
  const [problem] = problemsOf(t, configured(file, "[auth]\ncheck_permissions = false\n"));
  t.match(problem, `its group or others may write it, so run: chmod 600 ${file}`);
  t.end();
});

t.test("a file that holds no header value is refused without its content", (t) => {
  for (const content of ["", " \n", "hunter2\nhunter2", "hunter2\0hunter2", "hünter2"]) {
    const [problem = ""] = problemsOf(t, configured(secret(t, content, 0o600)));
    t.match(problem, "allowed: a file of one line of visible ASCII characters");
    t.notMatch(problem, /h.nter2/);
  }
  t.end();
});

t.test("a pipe is refused without waiting for a writer", (t) => {
  const file = join(temporaryDirectory(t), "pipe");
  execFileSync("mkfifo", ["-m", "600", file]);
  t.match(problemsOf(t, configured(file)), [/allowed: a regular file$/]);
  t.end();
});

t.test(
  "a configuration that holds the credential is accepted, with a warning if others may read it",
  (t) => {
    const directory = temporaryDirectory(t);
    const file = join(directory, "open.toml");
    writeFileSync(file, '[upstream]\nauthorization = "Bearer hunter2"\n');
    chmodSync(file, 0o644);
    const { warnings } = load(t, "", { config: file });
    t.strictSame(warnings, [
      `${file} holds upstream.authorization, and others may read it; run: chmod 600 ${file}`,
    ]);
    chmodSync(file, 0o600);
    t.strictSame(load(t, "", { config: file }).warnings, []);
    t.end();
  },
);
