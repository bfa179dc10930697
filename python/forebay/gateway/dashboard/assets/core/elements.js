/** Elements and hooks: the one module that names the vendored library. */
export {
  html,
  render,
  Component,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "../vendor/htm-3.1.1/standalone.module.js";
