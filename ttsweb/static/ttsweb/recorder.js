/* Record from the microphone into a file, with a clock and a level meter. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});
  const TYPES = ["audio/webm;codecs=opus", "audio/mp4", "audio/ogg;codecs=opus"];

  ttsweb.canRecord = () =>
    Boolean(navigator.mediaDevices && navigator.mediaDevices.getUserMedia && window.MediaRecorder);

  /* Begin a recording; `onLevel(level, seconds)` is told 20 times a second. stop() returns a File. */
  ttsweb.startRecording = async (longest, onLevel, onEnd) => {
    // What browsers do to calls for a better line takes from a voice what makes it one.
    const stream = await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
    const type = TYPES.find((one) => MediaRecorder.isTypeSupported(one)) || "";
    const recorder = new MediaRecorder(stream, type ? { mimeType: type, audioBitsPerSecond: 128000 } : {});
    const parts = [];
    const context = new AudioContext();
    const analyser = context.createAnalyser();
    analyser.fftSize = 1024;
    context.createMediaStreamSource(stream).connect(analyser);
    const samples = new Float32Array(analyser.fftSize);
    const begun = performance.now();
    const timer = setInterval(() => {
      analyser.getFloatTimeDomainData(samples);
      const seconds = (performance.now() - begun) / 1000;
      onLevel(Math.min(1, Math.max(...samples.map(Math.abs))), seconds);
      if (seconds >= longest && recorder.state === "recording") recorder.stop();
    }, 50);
    recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
    recorder.addEventListener("stop", () => {
      clearInterval(timer);
      for (const track of stream.getTracks()) track.stop();
      context.close();
      const kind = (recorder.mimeType || "audio/webm").split(";")[0];
      const ending = { "audio/mp4": "m4a", "audio/ogg": "ogg" }[kind] || "webm";
      onEnd(new File(parts, `recording.${ending}`, { type: kind }));
    });
    recorder.start(250);
    return { stop: () => recorder.state === "recording" && recorder.stop() };
  };
})();
