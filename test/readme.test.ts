import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import t, { type Test } from "tap";
import { sharedServer } from "./engine/postgres/kit.ts";
import { eventually, PATIENCE_MS } from "./kit/eventually.ts";
import { freePort } from "./kit/free-port.ts";
import { temporaryHome } from "./kit/gateway.ts";
import { blocksOf, codeIn, sectionOf } from "./kit/page.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const readme = readFileSync(path.join(root, "README.md"), "utf8");
const START = "npm ci && npm start";
const PASSWORD_LINE = "ADMIN_PASSWORD='the password that the start has printed'";

const firstSession = sectionOf(readme, "See it work");

/** The environment of a user with only a home directory. */
function environment(home: string, extra: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const { GATEHOUSE_HOME: _, GATEHOUSE_CONFIG: __, ...rest } = process.env;
  return { ...rest, HOME: home, NO_COLOR: "1", ...extra };
}

/** Starts the gateway by the README's own start command, and ends it with the test. */
async function start(t: Test, home: string, port: number, password: string): Promise<void> {
  const [, npmStart = ""] = START.split(" && ");
  const child = spawn("sh", ["-c", `exec ${npmStart} -- --port ${port}`], {
    cwd: root,
    env: environment(home, { GATEHOUSE_ADMIN_PASSWORD: password }),
    stdio: ["ignore", "pipe", "inherit"],
    detached: true,
  });
  const exited = once(child, "exit");
  t.teardown(async () => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, "SIGTERM");
    await exited;
  });
  await eventually("the start command comes up", async () => {
    if (child.exitCode !== null) throw new Error(`the start command has ended: ${child.exitCode}`);
    const answer = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined);
    return answer?.status === 200;
  });
}

/** Masks what differs between runs. */
function settled(output: string): string {
  return output.replace(/"request_id":"[^"]*"/g, '"request_id":"..."');
}

t.test("the README's start command and first session work", async (t) => {
  const port = await playFirstSession(t, temporaryHome(t));
  await t.test("the README's login says why it fails and leaves no token", (t) =>
    playLogins(t, port),
  );
});

t.test("the first session works over PostgreSQL with public in place of main", async (t) => {
  const home = temporaryHome(t);
  const server = await sharedServer();
  const url = server.url(await server.createDatabase());
  const directory = path.join(home, ".gatehouse");
  mkdirSync(directory, { mode: 0o700 });
  writeFileSync(path.join(directory, "gateway.toml"), `[upstream]\nurl = "${url}"\n`);
  await playFirstSession(t, home, "public");
});

async function playFirstSession(t: Test, home: string, database = "main"): Promise<number> {
  const port = await freePort();
  const password = "the first password";
  await start(t, home, port, password);

  const commands = codeIn(firstSession, "sh").map((code) =>
    code.trim().replaceAll(/\bmain\b/g, database),
  );
  t.equal(commands[0], START);
  t.equal(commands[1], PASSWORD_LINE);
  const session = commands
    .slice(2)
    .join("\n")
    .replace("http://127.0.0.1:8080", `http://127.0.0.1:${port}`);
  const script = `ADMIN_PASSWORD='${password}'\n${session}`;
  const shell = spawn("bash", ["-c", script], {
    cwd: root,
    env: environment(home),
    timeout: PATIENCE_MS,
  });
  const [output, errors] = await Promise.all([text(shell.stdout), text(shell.stderr)]);
  t.equal(errors.replaceAll(/^npm (?:warn|notice)\b.*\n/gm, ""), "");
  const expected = codeIn(firstSession, "console").join("");
  t.equal(settled(output), settled(expected.replaceAll(/\bmain\b/g, database)));
  return port;
}

async function playLogins(t: Test, port: number): Promise<void> {
  const functions = codeIn(firstSession, "sh").find((code) => code.includes("login()"));
  const play = (script: string, at: number) => {
    const session = functions?.replace("http://127.0.0.1:8080", `http://127.0.0.1:${at}`);
    return spawnSync("bash", ["-c", `TOKEN=old\n${session}\n${script}`], { encoding: "utf8" });
  };
  const wrong = play('login admin "wrong"; echo "$? <$TOKEN>"', port);
  t.equal(wrong.stdout, "1 <>\n");
  t.match(wrong.stderr, /"message":"Invalid username or password"/);
  const unreachable = play('login admin "any"; echo "<$TOKEN>"', await freePort());
  t.equal(unreachable.stdout, "<>\n");
  t.match(unreachable.stderr, /^curl: \(7\) /);
  const right = play('login admin "the first password"; echo "$? <$TOKEN>"', port);
  t.match(right.stdout, /^0 <[\w.-]+>\n$/);
}

t.test("the README names the test command of this project", (t) => {
  const commands = blocksOf(sectionOf(readme, "Work on it")).map(({ code }) => code.trim());
  t.strictSame(commands, ["npm ci && npm test"]);
  t.end();
});
