/** Sixty questions about a shop, answered by the tools with the calls that a model needs at best. */
import path from "node:path";
import t from "tap";
import { answersOf, computedAnswers, playAll, questions } from "../../bench/questions/measured.ts";
import { askModel } from "../../bench/questions/model.ts";
import { isSame } from "../../bench/questions/play.ts";
import { askAt, openSetting } from "../../bench/questions/setting.ts";
import { Shop, scales } from "../../bench/questions/shop.ts";
import { nightly } from "../kit/nightly.ts";

const opened = new AsyncDisposableStack();
t.teardown(() => opened.disposeAsync());
const shop = new Shop(scales.small);
const setting = await openSetting(opened, shop);
const ask = askAt(setting);

t.test("there are sixty, each with answers that the rows give", async (t) => {
  t.equal(questions.length, 60);
  t.equal(new Set(questions.map(({ id }) => id)).size, 60);
  const computed = computedAnswers(shop);
  const written = answersOf("small");
  const million = answersOf("million");
  for (const { id, check } of questions) {
    t.ok(isSame(computed[id]?.answer, written[id]?.answer), id);
    t.ok(isSame(computed[id]?.after, written[id]?.after), `${id} afterwards`);
    t.not(million[id]?.answer, undefined, id);
    t.equal(written[id]?.after !== undefined, check !== undefined, `${id} is checked afterwards`);
  }
});

t.test("the best calls answer each question rightly within its budget", nightly, async (t) => {
  for await (const outcome of playAll(ask, "small", questions)) {
    const { id, isRight, isWithinBudget, calls, bytes, found } = outcome;
    t.ok(isRight, `${id}: ${JSON.stringify(found)}`);
    t.ok(isWithinBudget, `${id}: ${calls} calls, ${bytes} bytes`);
  }
});

t.test("a wrong answer is told from a right one, whatever fields are called", async (t) => {
  t.ok(isSame([{ country: "AT", n: 3 }], [["AT", 3]]));
  t.ok(isSame(0.1 + 0.2, 0.3));
  for (const wrong of [[["AT", 4]], [["AT"]], [], 3, undefined, [["AT", "3"]]]) {
    t.notOk(isSame(wrong, [["AT", 3]]));
  }
});

t.test("a program in the place of the model is metered and its answer judged", async (t) => {
  const program = path.join(import.meta.dirname, "counting-model.ts");
  const asked = questions.filter(({ id }) => id === "vips" || id === "no-city");
  await using forModel = new AsyncDisposableStack();
  const options = { setting, ask, scale: "small", asked } as const;
  const command = `'${process.execPath}' '${program}'`;
  const outcomes = await Array.fromAsync(askModel(forModel, command, options));
  t.match(outcomes, [
    { id: "vips", isRight: true, isWithinBudget: true, calls: 1, bytes: 98 },
    { id: "no-city", isRight: false, calls: 1 },
  ]);
});
