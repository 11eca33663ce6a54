/** Tests of what Node itself does for the gateway, on the oldest Node that `package.json` allows. */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import t from "tap";
import { temporaryHome } from "../kit/gateway.ts";
import { projectRoot } from "../kit/process.ts";

const files = [
  "engine/selects",
  "engine/types",
  "grants/rows",
  "approvals/query",
  "oauth/flow",
  "mcp/embedded",
  "journeys/tokens",
];

const { engines } = JSON.parse(readFileSync(path.join(projectRoot, "package.json"), "utf8"));
const [oldest] = /\d[\d.]+/.exec(engines.node) ?? [];
const home = temporaryHome(t);
await promisify(execFile)("npm", ["install", "--no-audit", "--prefix", home, `node@${oldest}`]);
const bin = path.join(home, "node_modules/.bin");
const env = { ...process.env, PATH: `${bin}:${process.env.PATH}`, TAP_TIMEOUT: "900" };
for (const file of files) {
  await t.spawn(path.join(bin, "node"), [`test/${file}.test.ts`], { cwd: projectRoot, env }, file);
}
