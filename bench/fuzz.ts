/**
 * Fuzzes the body parser against other parsers.
 *
 * `npm run fuzz -- [--cases N | --seconds S] [--seed N] [--guided]`
 *
 * Cases are valid queries and damaged ones; `test/query/differential.ts` checks each. The same seed gives
 * the same cases. With `--guided`, bodies that reach new code are damaged further. On a difference, prints
 * the body in base64 and exits with 1.
 */

import { parseArgs } from "node:util";
import { choicesOf } from "../test/query/arbitrary.ts";
import { judgeBody } from "../test/query/differential.ts";
import { BodyMaker } from "../test/query/fuzz-bodies.ts";
import { CoverageGuide } from "./fuzz-coverage.ts";

const { values: flags } = parseArgs({
  options: {
    cases: { type: "string" },
    seconds: { type: "string" },
    seed: { type: "string" },
    guided: { type: "boolean" },
  },
});
const most = Number(flags.cases ?? (flags.seconds === undefined ? 1_000_000 : Infinity));
const until = performance.now() + 1000 * Number(flags.seconds ?? Infinity);
const seed = Number(flags.seed ?? Math.floor(Math.random() * 2 ** 31));
const guide = flags.guided === true ? new CoverageGuide("/src/core/query/") : undefined;
const maker = new BodyMaker(choicesOf(seed));

// Most cases are refused, so stack traces would cost too much.
Error.stackTraceLimit = 0;
console.log(`seed ${seed}${guide === undefined ? "" : ", guided by coverage"}`);
let cases = 0;
let accepted = 0;
const began = performance.now();
for (; cases < most && performance.now() < until; cases++) {
  const body = maker.next();
  const { fault, isAccepted } = judgeBody(body);
  if (isAccepted) accepted++;
  if (fault !== undefined) fail(body, fault);
  if (guide?.isNews() === true) maker.keep(body);
}
const seconds = (performance.now() - began) / 1000;
console.log(
  `${cases} cases in ${seconds.toFixed(1)} s, ${accepted} of them accepted: no fault found`,
);
if (guide !== undefined) {
  console.log(`${guide.size} places reached by ${maker.kept} bodies`);
  for (const place of guide.unreached()) console.log(`not reached: ${place}`);
}

function fail(body: Buffer, fault: string): never {
  console.error(`case ${cases} of seed ${seed}: ${fault}`);
  console.error(body.toString());
  console.error(body.toString("base64"));
  process.exit(1);
}
