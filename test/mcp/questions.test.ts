/** Sixty questions about a shop, answered with the fewest calls that a model needs. */
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

t.test("there are sixty questions, whose answers follow from the rows", async (t) => {
  t.equal(questions.length, 60);
  t.equal(new Set(questions.map(({ id }) => id)).size, 60);
  const computed = computedAnswers(shop);
  const written = answersOf("small");
  const million = answersOf("million");
  const wrong = questions.filter(({ id, check }) => {
    const { answer, after } = written[id] ?? {};
    const isRight = isSame(computed[id]?.answer, answer) && isSame(computed[id]?.after, after);
    const isComplete = million[id]?.answer !== undefined;
    return !isRight || !isComplete || (after !== undefined) !== (check !== undefined);
  });
  t.same(wrong, []);
});

t.test("the best calls answer each question within its budget", nightly, async (t) => {
  for await (const outcome of playAll(ask, "small", questions)) {
    t.match(outcome, { isRight: true, isWithinBudget: true }, outcome.id);
  }
});

t.test("answers are compared by value, whatever their fields are called", async (t) => {
  t.ok(isSame([{ country: "AT", n: 3 }], [["AT", 3]]));
  t.ok(isSame(0.1 + 0.2, 0.3));
  for (const wrong of [[["AT", 4]], [["AT"]], [], 3, undefined, [["AT", "3"]]]) {
    t.notOk(isSame(wrong, [["AT", 3]]));
  }
});

t.test("a program used as the model is measured and its answer checked", async (t) => {
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
