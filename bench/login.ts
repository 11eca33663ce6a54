/**
 * Measures logins with the default costs: whether response times reveal existing users, and how a storm of
 * logins affects queries.
 *
 * `node bench/login.ts [--rounds 200] [--seconds 20] [--rate 100] [--clients 100] [--json]`
 */

import { setPriority } from "node:os";
import { parseArgs } from "node:util";
import { tokenOf } from "./login/client.ts";
import { openSetting, PASSWORD } from "./login/setting.ts";
import { duringStorm, queryLoad } from "./login/storm.ts";
import { compareTimes, loginDoor, pageDoor, type TimingFigure } from "./login/timing.ts";

const { values: flags } = parseArgs({
  options: {
    rounds: { type: "string", default: "200" },
    seconds: { type: "string", default: "20" },
    rate: { type: "string", default: "100" },
    clients: { type: "string", default: "100" },
    json: { type: "boolean", default: false },
  },
});
const WARM_UP_SECONDS = 3;

/** Clients and database simulate other machines, so they get higher priority than hashing. */
function standApart(): boolean {
  try {
    setPriority(-10);
    return true;
  } catch {
    return false;
  }
}

async function measureTimes() {
  await using opened = new AsyncDisposableStack();
  const { url } = await openSetting(opened, { withImported: true });
  const rounds = Number(flags.rounds);
  return [
    ...(await compareTimes("/login", loginDoor(url), rounds)),
    ...(await compareTimes("login page", await pageDoor(url), rounds)),
  ];
}

async function measureStorm() {
  await using opened = new AsyncDisposableStack();
  const { url } = await openSetting(opened, { withImported: false });
  const isApart = standApart();
  const token = await tokenOf(url, "known", PASSWORD);
  const load = { rate: Number(flags.rate), seconds: Number(flags.seconds) };
  await queryLoad(url, token, { ...load, seconds: WARM_UP_SECONDS });
  const quiet = await queryLoad(url, token, load);
  const { result: stormy, ...storm } = await duringStorm(url, Number(flags.clients), () =>
    queryLoad(url, token, load),
  );
  return { isApart, quiet, stormy, storm };
}

function print(times: TimingFigure[], storm: Awaited<ReturnType<typeof measureStorm>>): void {
  const short = (value: number | undefined) => (value === undefined ? "" : value.toFixed(3));
  console.table(
    times.map(({ medianMs, p, ...rest }) => ({ ...rest, medianMs: short(medianMs), p: short(p) })),
  );
  const { quiet, stormy } = storm;
  const rows = { quiet, "while logins storm": stormy };
  const rounded = Object.entries(rows).map(([when, { p50Ms, p99Ms, queries, failed }]) => ({
    when,
    p50Ms: short(p50Ms),
    p99Ms: short(p99Ms),
    queries,
    failed,
  }));
  console.table([
    ...rounded,
    {
      when: "ratio",
      p50Ms: short(stormy.p50Ms / quiet.p50Ms),
      p99Ms: short(stormy.p99Ms / quiet.p99Ms),
    },
  ]);
  console.table(storm.storm);
  if (!storm.isApart)
    console.log("clients ran at the gateway's priority: their delays count as its");
}

const times = await measureTimes();
const storm = await measureStorm();
if (flags.json) console.log(JSON.stringify({ times, storm }));
else print(times, storm);
