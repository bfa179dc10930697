/** Whether somebody can see the page. */
import { Signal } from "./signal.js";

export const visible = new Signal(document.visibilityState !== "hidden");

document.addEventListener("visibilitychange", () => {
  visible.value = document.visibilityState !== "hidden";
});
