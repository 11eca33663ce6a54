import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Command } from "commander";
import t from "tap";
import { accessCommand } from "../../src/cli/access.ts";
import { approvalsCommand } from "../../src/cli/approvals.ts";
import { auditCommand } from "../../src/cli/audit.ts";
import { configCommand } from "../../src/cli/config.ts";
import { keyCommand } from "../../src/cli/key.ts";
import { mcpCommand } from "../../src/cli/mcp.ts";
import { hashPasswordCommand } from "../../src/cli/password.ts";
import { presetCommand } from "../../src/cli/preset.ts";
import { serveCommand } from "../../src/cli/serve.ts";
import { storeCommand } from "../../src/cli/store.ts";
import { tokenCommand } from "../../src/cli/token.ts";
import { typesCommand } from "../../src/cli/types.ts";
import { upstreamCommand } from "../../src/cli/upstream.ts";
import { userCommand } from "../../src/cli/user.ts";
import { version } from "../../src/core/base/product.ts";
import { cleanEnvironment } from "../kit/process.ts";
import { done, install, installNothing } from "./kit.ts";

const clone = path.join(import.meta.dirname, "../..");
const program = path.join(clone, "bin/gatehouse.js");

t.test("--help prints to standard output", async (t) => {
  const gatehouse = installNothing(t);
  const helps: Record<string, RegExp> = {
    "--help":
      /^Usage: \/\S+\/gatehouse \[options] \[command].*\n {2}serve .*\n {2}user .*\n {2}access /s,
    "user --help": /^Usage: \/\S+\/gatehouse user .*add .*list .*password .*remove /s,
    "user add --help": /--email.*--admin.*--password-stdin.*--no-password/s,
    "help user add": /--email.*--admin.*--password-stdin/s,
    "access --help": /grant .*revoke .*list .*check /s,
    "access grant --help": /choices: "Owner",\s+"DbAdmin",\s+"ReadWrite",\s+"ReadOnly"/,
    "config check --help": /without\s+changing\s+anything/,
    "serve --help":
      /--host <host>.*\(default:\s+server\.host,\s+else\s+127\.0\.0\.1\).*--port <port>.*else\s+8080\)/s,
    "token issue --help": /--expires <time>.*\(default: 90d\)/s,
    "upstream test --help": /--url <url>.*--level <level>.*choices:\s+"core", "full"/s,
    "preset test --help":
      /choices: "chroma",\s+"opensearch",\s+"couchdb".*--url <url>.*--credential-file <file>/s,
  };
  for (const [flags, text] of Object.entries(helps)) {
    const help = await gatehouse.run(flags);
    t.match(help, { code: 0, stderr: "", stdout: text }, flags);
    const [, ...lines] = help.stdout.split("\n");
    t.same(
      lines.filter((line) => line.length > 80),
      [],
      "it fits a terminal",
    );
  }
});

function subcommandsOf(command: Command): Command[] {
  return command.commands.length === 0 ? [command] : command.commands.flatMap(subcommandsOf);
}

t.test("every command accepts --config and explains its arguments and options", async (t) => {
  const groups = [serveCommand(), userCommand(), approvalsCommand(), tokenCommand(), keyCommand()];
  groups.push(hashPasswordCommand(), auditCommand(), configCommand(), storeCommand());
  groups.push(upstreamCommand(), presetCommand(), mcpCommand(), typesCommand());
  groups.push(await accessCommand());
  const commands = groups.flatMap(subcommandsOf);
  t.ok(commands.length > 40, `${commands.length}`);
  for (const command of commands) {
    const { options, registeredArguments } = command;
    const parts = [
      command.description(),
      ...[...options, ...registeredArguments].map(({ description }) => description),
    ];
    t.ok(
      parts.every((text) => /^\S.*[^.]$/s.test(text)),
      command.name(),
    );
    t.ok(
      options.some(({ flags }) => flags === "--config <file>"),
      command.name(),
    );
  }
});

t.test("the version is that of the package", async (t) => {
  t.strictSame(await installNothing(t).run("--version"), done(version));
});

t.test("an invalid command line exits with 2 and says what is allowed", async (t) => {
  const gatehouse = install(t);
  const invalid: Record<string, RegExp> = {
    fly: /^gatehouse: unknown command 'fly'\n\(add --help to see what is allowed\)\n$/,
    "user fly": /^gatehouse: unknown command 'fly'\n\(add --help to see what is allowed\)\n$/,
    "serve --prot 1":
      /^gatehouse: unknown option '--prot'\n.*\(add --help to see what is allowed\)\n$/s,
    "serve --port 70000": /^gatehouse: --port: .*; allowed: a whole number from 0 to 65535/,
    "serve --port x": /^gatehouse: .*'x' is invalid\. .*\n\(add --help to see what is allowed\)\n$/,
    "user list --config": /option '--config <file>' argument missing/,
    engine: /^gatehouse: unknown command 'engine'/,
    "user add max --password x": /'--password'\n\(Did you mean --password-stdin\?\)\n/,
    "access list --user ann --user ben": /^gatehouse: option '--user' is given twice\n/,
    "access list --jsno": /unknown option '--jsno'/,
  };
  for (const [flags, text] of Object.entries(invalid)) {
    const { code, stdout, stderr } = await gatehouse.run(flags);
    t.strictSame([code, stdout], [2, ""], flags);
    t.match(stderr, text);
    t.notMatch(stderr, /at .*\.ts:\d+/s, "no stack trace");
  }
  for (const flags of ["user", "access", "config"]) {
    const { code, stdout, stderr } = await gatehouse.run(flags);
    t.strictSame([code, stdout], [2, ""], flags);
    t.match(stderr, /^Usage: \/\S+\/gatehouse/);
  }
});

t.test("a command completes its work without a reader, and says if it cannot print", (t) => {
  const { home, accessFile } = install(t);
  const env = cleanEnvironment(home);
  const run = (shell: string) => {
    const command = `"${process.execPath}" "${program}" ${shell}`;
    return spawnSync("bash", ["-c", `set -o pipefail; ${command}`], { encoding: "utf8", env });
  };
  t.match(run("user add max --no-password | true"), { status: 0, stderr: "" });
  t.match(run("user list --json | true"), { status: 0, stderr: "" });
  t.match(readFileSync(accessFile, "utf8"), 'username = "max"');
  const full =
    "gatehouse: cannot write to standard output: ENOSPC: no space left on device, write\n";
  writeFileSync(path.join(home, "gateway.toml"), '[audit]\nfile = "audit.log"\n');
  writeFileSync(path.join(home, "audit.log"), "");
  t.match(run("audit 2>/dev/full"), { status: 0 }, "what it has to say is lost");
  for (const list of ["user list", "token list", "audit --csv"]) {
    t.match(run(`${list} >/dev/full`), { status: 1, stderr: full }, list);
  }
  t.end();
});

t.test("control characters of an argument do not reach the terminal", async (t) => {
  const gatehouse = install(t);
  for (const command of ["user remove", "access test", "serve --port", "access grant --max-rows"]) {
    const { stderr } = await gatehouse.run(command, ["\u001b[2Ja\u202e"]);
    t.match(stderr, "\\u{1b}[2Ja\\u{202e}", command);
    t.notMatch(stderr, /(?!\n)[\p{Cc}\p{Cf}]/u, command);
  }
});

t.test("in a clone, the command runs by its path and by npx without a build", (t) => {
  const { home } = installNothing(t);
  const env = cleanEnvironment(home, {
    NODE_DISABLE_COMPILE_CACHE: "1",
    npm_config_cache: path.join(home, "npm"),
    npm_config_offline: "true",
    npm_config_update_notifier: "false",
  });
  const calls: [command: string, directory: string][] = [
    ["../gatehouse key list --help", path.join(clone, "src")],
    ["npx gatehouse key list --help", clone],
  ];
  symlinkSync(path.join(clone, "gatehouse"), path.join(home, "linked"));
  calls.push(["./linked key list --help", home]);
  for (const [command, cwd] of calls) {
    const { status, stdout } = spawnSync("sh", ["-c", command], { cwd, env, encoding: "utf8" });
    t.match({ status, stdout }, { status: 0, stdout: /^Usage: .*gatehouse key list/ }, command);
  }
  const help = spawnSync("./gatehouse", ["user"], { cwd: clone, env, encoding: "utf8" });
  t.match(help.stderr, /^Usage: \.\/gatehouse user /, "hints use the same path");
  t.end();
});

t.test("no page or hint suggests a call that could fetch another package of that name", (t) => {
  const { name, bin } = JSON.parse(readFileSync(path.join(clone, "package.json"), "utf8"));
  t.strictSame([name, Object.keys(bin)], ["gatehouse-gateway", ["gatehouse"]]);
  const places = ["README.md", "SECURITY.md", "gateway.toml.example", "bin", "deploy", "docs"];
  const fetching =
    /\b(?:npx|npm exec|npm x|pnpm dlx|yarn dlx|bunx)\b[^\n]*\bgatehouse\b(?!-gateway)/;
  for (const place of [...places, "src"]) {
    const start = path.join(clone, place);
    const isFile = statSync(start).isFile();
    const names = isFile ? [""] : readdirSync(start, { recursive: true, encoding: "utf8" });
    for (const file of names.map((own) => path.join(start, own))) {
      if (!statSync(file).isFile()) continue;
      t.notMatch(readFileSync(file, "utf8"), fetching, path.relative(clone, file));
    }
  }
  t.end();
});

t.test("an old Node is refused in one sentence, with exit status 1", (t) => {
  const gatehouse = installNothing(t);
  const preload = path.join(gatehouse.home, "old-node.cjs");
  for (const version of ["18.20.4", "24.14.1", "25.9.0"]) {
    writeFileSync(
      preload,
      `Object.defineProperty(process, "version", { value: "v${version}" });
       Object.defineProperty(process, "versions", { value: { ...process.versions, node: "${version}" } });`,
    );
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      ["--no-deprecation", "--require", preload, program, "user", "list"],
      // Without --no-deprecation, what the test runner loads would print warnings.
      { cwd: gatehouse.home, env: cleanEnvironment(gatehouse.home), encoding: "utf8" },
    );
    t.strictSame([status, stdout], [1, ""]);
    t.equal(
      stderr,
      `gatehouse needs Node 24.15, or 26 or newer, but this is v${version}; in a clone run npm ci first, then npm start or ./gatehouse\n`,
    );
  }
  t.end();
});
