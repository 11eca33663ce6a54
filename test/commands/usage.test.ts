import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { version } from "../../src/product.ts";
import { cleanEnvironment } from "../kit/process.ts";
import { done, install, installNothing } from "./kit.ts";

const clone = path.join(import.meta.dirname, "../..");
const program = path.join(clone, "bin/gatehouse.js");

t.test("help is asked for and given on standard output", async (t) => {
  const gatehouse = installNothing(t);
  const helps: Record<string, RegExp> = {
    "--help":
      /^Usage: \/\S+\/gatehouse \[options] \[command].*\n {2}serve .*\n {2}user .*\n {2}access /s,
    help: /^Usage: \/\S+\/gatehouse/,
    "user --help": /^Usage: \/\S+\/gatehouse user .*add .*list .*password .*remove /s,
    "user add --help": /--email.*--admin.*--password-stdin.*--no-password/s,
    "access --help": /grant .*revoke .*list .*check /s,
    "access grant --help": /choices: "Owner",\s+"DbAdmin",\s+"ReadWrite",\s+"ReadOnly"/,
    "config check --help": /change\s+nothing/,
    "serve --help":
      /--host <host>.*\(default:\s+server\.host,\s+else\s+127\.0\.0\.1\).*--port <port>.*else\s+8080\)/s,
    "token issue --help": /--expires <time>.*\(default: 90d\)/s,
    "engine --help":
      /--url <url>.*--databases <kind>.*"schemas", "databases".*--listen <address>.*\$GATEHOUSE_ENGINE_AUTHORIZATION/s,
  };
  const results = await gatehouse.runAll(Object.keys(helps));
  for (const [index, [flags, text]] of Object.entries(helps).entries()) {
    const result = results[index];
    t.match(result, { code: 0, stderr: "", stdout: text }, flags);
  }
});

t.test("every command takes --config", async (t) => {
  const gatehouse = installNothing(t);
  const commands = ["serve", "engine", "config check", "user add", "user list", "user password"];
  commands.push("user remove", "access grant", "access revoke", "access list", "access check");
  const results = await gatehouse.runAll(commands.map((command) => `${command} --help`));
  for (const [index, command] of commands.entries()) {
    t.match(results[index]?.stdout, /--config <file>/, command);
  }
});

t.test("every argument is explained", async (t) => {
  const gatehouse = installNothing(t);
  const commands = ["user add", "user password", "user remove", "user disable", "user enable"];
  commands.push("access grant", "access revoke", "access check", "token issue", "token revoke");
  commands.push("key revoke");
  for (const { stdout } of await gatehouse.runAll(commands.map((name) => `${name} --help`))) {
    const [, section = ""] = /\nArguments:\n(.*?)\n\n/s.exec(stdout) ?? [];
    t.not(section, "", stdout);
    for (const line of section.split("\n")) t.match(line, /^ {2}\S* +\S/);
  }
});

t.test("the version is that of the package", async (t) => {
  t.strictSame(await installNothing(t).run("--version"), done(version));
});

t.test("a command line that makes no sense ends with 2 and says what is allowed", async (t) => {
  const gatehouse = install(t);
  const senseless: Record<string, RegExp> = {
    fly: /^gatehouse: unknown command 'fly'\n\(add --help for what is allowed\)\n$/,
    "user fly": /^gatehouse: unknown command 'fly'\n\(add --help for what is allowed\)\n$/,
    "serve --prot 1":
      /^gatehouse: unknown option '--prot'\n.*\(add --help for what is allowed\)\n$/s,
    "serve --port 70000": /^gatehouse: --port: .*; allowed: a whole number from 0 to 65535/,
    "serve --port x": /^gatehouse: .*'x' is invalid\. .*\n\(add --help for what is allowed\)\n$/,
    "user list --config": /option '--config <file>' argument missing/,
    "engine --databases schemas --url sqlite:x":
      /^gatehouse: --databases is for PostgreSQL alone, whose --url begins with postgres:\n$/,
    "engine --databases databases --url mysql://app@h/":
      /^gatehouse: --databases is for PostgreSQL alone/,
    "access list --jsno": /unknown option '--jsno'/,
  };
  for (const [flags, text] of Object.entries(senseless)) {
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

t.test("in a clone the command runs by its path, and by npx without a build", (t) => {
  const { home } = installNothing(t);
  const env = cleanEnvironment(home, {
    NODE_DISABLE_COMPILE_CACHE: "1",
    npm_config_cache: path.join(home, "npm"),
    npm_config_offline: "true",
    npm_config_update_notifier: "false",
  });
  const ways: [command: string, directory: string][] = [
    ["./gatehouse --version", clone],
    ["../gatehouse --version", path.join(clone, "src")],
    [`${path.join(clone, "gatehouse")} --version`, home],
    ["npx gatehouse --version", clone],
  ];
  symlinkSync(path.join(clone, "gatehouse"), path.join(home, "linked"));
  ways.push(["./linked --version", home]);
  for (const [command, cwd] of ways) {
    const { status, stdout } = spawnSync("sh", ["-c", command], { cwd, env, encoding: "utf8" });
    t.strictSame([status, stdout], [0, `${version}\n`], command);
  }
  const help = spawnSync("./gatehouse", ["user"], { cwd: clone, env, encoding: "utf8" });
  t.match(help.stderr, /^Usage: \.\/gatehouse user /, "and a hint names it so");
  t.end();
});

t.test("no page and no hint teaches a call that could fetch another package of that name", (t) => {
  const { name, bin } = JSON.parse(readFileSync(path.join(clone, "package.json"), "utf8"));
  t.strictSame([name, Object.keys(bin)], ["gatehouse-gateway", ["gatehouse"]]);
  const places = ["README.md", "SECURITY.md", "gateway.toml.example", "bin", "deploy", "docs"];
  const fetching = /\b(?:npx|npm exec|npm x|pnpm dlx|yarn dlx|bunx)\b[^\n]*\bgatehouse\b/;
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

t.test("on an old Node it says so in one sentence and ends with 1", (t) => {
  const gatehouse = installNothing(t);
  const preload = path.join(gatehouse.home, "old-node.cjs");
  writeFileSync(
    preload,
    `Object.defineProperty(process, "version", { value: "v18.20.4" });
     Object.defineProperty(process, "versions", { value: { ...process.versions, node: "18.20.4" } });`,
  );
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ["--no-deprecation", "--require", preload, program, "user", "list"],
    // What the test runner loads into every process would add deprecation warnings of its own.
    { cwd: gatehouse.home, env: cleanEnvironment(gatehouse.home), encoding: "utf8" },
  );
  t.strictSame([status, stdout], [1, ""]);
  t.equal(
    stderr,
    "gatehouse needs Node 24 or newer, but this is v18.20.4; in a clone run npm ci first, then npm start or ./gatehouse\n",
  );
  t.end();
});
