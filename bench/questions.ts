/**
 * Answers sixty questions about a shop with the tools of `/mcp`, either with prepared calls or with a model,
 * and checks the answers.
 *
 * `node bench/questions.ts [--scale million|small] [--model <command>] [--only <id>] [--write]`
 */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { computedAnswers, type Outcome, playAll, questions } from "./questions/measured.ts";
import { askModel } from "./questions/model.ts";
import { askAt, openSetting } from "./questions/setting.ts";
import { type Scale, Shop, scales } from "./questions/shop.ts";

const { values: flags } = parseArgs({
  options: {
    scale: { type: "string", default: "million" },
    model: { type: "string" },
    only: { type: "string" },
    write: { type: "boolean", default: false },
  },
});

function isScale(text: string): text is Scale {
  return Object.hasOwn(scales, text);
}

/** Writes the reference answers to answers.json. */
function writeAnswers(): void {
  const file = new URL("questions/answers.json", import.meta.url);
  const answers = Object.entries(scales).map(
    ([scale, sizes]) => [scale, computedAnswers(new Shop(sizes))] as const,
  );
  writeFileSync(file, `${JSON.stringify(Object.fromEntries(answers), undefined, 2)}\n`);
}

function print({ id, isRight, isWithinBudget, calls, bytes, milliseconds, found }: Outcome): void {
  const verdict = isRight ? "right" : `WRONG: ${JSON.stringify(found)}`;
  const budget = isWithinBudget ? "" : "  over budget";
  const figures = `${String(calls).padStart(3)} calls ${String(bytes).padStart(6)} bytes`;
  const time = `${milliseconds.toFixed(0).padStart(7)} ms`;
  console.log(`${id.padEnd(22)} ${figures} ${time}  ${verdict}${budget}`);
}

async function main(scale: Scale): Promise<boolean> {
  await using opened = new AsyncDisposableStack();
  const start = performance.now();
  const setting = await openSetting(opened, new Shop(scales[scale]));
  const seconds = (performance.now() - start) / 1000;
  console.log(`${setting.rows} rows, filled in ${seconds.toFixed(0)} s`);
  const ask = askAt(setting);
  const asked = questions.filter(({ id }) => flags.only === undefined || id === flags.only);
  const outcomes =
    flags.model === undefined
      ? playAll(ask, scale, asked)
      : askModel(opened, flags.model, { setting, ask, scale, asked });
  const totals = { right: 0, within: 0, calls: 0, bytes: 0, milliseconds: 0 };
  for await (const outcome of outcomes) {
    print(outcome);
    totals.right += Number(outcome.isRight);
    totals.within += Number(outcome.isWithinBudget);
    totals.calls += outcome.calls;
    totals.bytes += outcome.bytes;
    totals.milliseconds += outcome.milliseconds;
  }
  const { right, within, calls, bytes, milliseconds } = totals;
  console.log(
    `${right} of ${asked.length} right, ${within} within budget: ${calls} calls, ${bytes} bytes, ${(milliseconds / 1000).toFixed(1)} s`,
  );
  return right === asked.length && within === asked.length;
}

if (flags.write) writeAnswers();
else if (!isScale(flags.scale)) throw new Error(`--scale is ${Object.keys(scales).join(" or ")}`);
else if (!(await main(flags.scale))) process.exitCode = 1;
