/**
 * Answers a hundred questions about a shop with the tools of `/mcp`, either with prepared calls or
 * with a model, and checks the answers.
 *
 * `node bench/questions.ts [--scale million|small] [--model <command>] [--only <id>]`
 */
import { parseArgs } from "node:util";
import { askModel } from "./questions/model.ts";
import { type Outcome, playAll, questions, summarize } from "./questions/play.ts";
import { askAt, openSetting } from "./questions/setting.ts";
import { Shop, scales } from "./questions/shop.ts";

const { values: flags } = parseArgs({
  options: {
    scale: { type: "string", default: "million" },
    model: { type: "string" },
    only: { type: "string" },
  },
});

function print({ id, isRight, calls, bytes, milliseconds, found }: Outcome): void {
  const verdict = isRight ? "right" : `WRONG: ${JSON.stringify(found)}`;
  const figures = `${String(calls).padStart(3)} calls ${String(bytes).padStart(6)} bytes`;
  const time = `${milliseconds.toFixed(0).padStart(7)} ms`;
  console.log(`${id.padEnd(22)} ${figures} ${time}  ${verdict}`);
}

const sizes = Object.entries(scales).find(([name]) => name === flags.scale)?.[1];
if (sizes === undefined) throw new Error(`--scale is ${Object.keys(scales).join(" or ")}`);
await using opened = new AsyncDisposableStack();
const start = performance.now();
const shop = new Shop(sizes);
const setting = await openSetting(opened, shop);
console.log(`${setting.rows} rows, filled in ${((performance.now() - start) / 1000).toFixed(0)} s`);
const ask = askAt(setting);
const asked = questions.filter(([id]) => flags.only === undefined || id === flags.only);
const outcomes: Outcome[] = [];
for await (const outcome of flags.model === undefined
  ? playAll(ask, shop, asked)
  : askModel(opened, flags.model, { setting, ask, shop, asked })) {
  print(outcome);
  outcomes.push(outcome);
}
const { text, isReached } = summarize(outcomes);
console.log(text);
if (!isReached) process.exitCode = 1;
