{{- define "ttsweb.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What tells pods of a component; a Deployment's selector never changes. */}}
{{- define "ttsweb.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "ttsweb.labels" -}}
{{ include "ttsweb.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "ttsweb.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "ttsweb.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "ttsweb.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* What all pods have. Service links are off: a Service named tts would set TTS_PORT. */}}
{{- define "ttsweb.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "ttsweb.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* A value as it was written: whole numbers of a file come as 1e+08. */}}
{{- define "ttsweb.plain" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}
{{ int64 . }}
{{- else -}}
{{ toString . }}
{{- end -}}
{{- end -}}

{{/* Settings of every process that works with the database and the storage. */}}
{{- define "ttsweb.env" -}}
{{- $secret := required "secrets.existingSecret: name a Secret with TTS_SECRET_KEY, TTS_DATABASE_URL and TTS_REDIS_URL" .Values.secrets.existingSecret -}}
{{- if not (or .Values.storage.bucket .Values.storage.existingClaim) -}}
{{- fail "storage: name a bucket or an existingClaim" -}}
{{- end -}}
{{- if and .Values.storage.bucket .Values.storage.existingClaim -}}
{{- fail "storage: name a bucket or an existingClaim, not both" -}}
{{- end -}}
- {name: TTS_DATA_DIR, value: /data}
- {name: TTS_LOG_FORMAT, value: json}
- {name: TTS_STORAGE, value: {{ .Values.storage.bucket | default "/data/media" | quote }}}
{{- range $name := list "TTS_SECRET_KEY" "TTS_DATABASE_URL" "TTS_REDIS_URL" }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: {{ $name }}}}
{{- end }}
{{- with .Values.secrets.s3ExistingSecret }}
{{- range $name := list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $.Values.secrets.s3ExistingSecret }}, key: {{ $name }}}}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- {name: {{ $name }}, value: {{ include "ttsweb.plain" $value | quote }}}
{{- end }}
{{- end -}}

{{/* Where a process writes: the root itself is read-only. */}}
{{- define "ttsweb.mounts" -}}
- {name: data, mountPath: /data}
- {name: tmp, mountPath: /tmp}
{{- if .Values.storage.existingClaim }}
- {name: media, mountPath: /data/media}
{{- end }}
{{- end -}}

{{- define "ttsweb.volumes" -}}
- name: data
  emptyDir: {sizeLimit: {{ .size }}}
- name: tmp
  emptyDir: {sizeLimit: 2Gi}
{{- with .root.Values.storage.existingClaim }}
- name: media
  persistentVolumeClaim: {claimName: {{ . }}}
{{- end }}
{{- end -}}

{{/* A container that brings the weights to /data/models, and one that checks further digests. */}}
{{- define "ttsweb.pull" -}}
{{- $weights := .Values.weights -}}
- name: pull-weights
  image: {{ include "ttsweb.image" (dict "root" . "image" .Values.image.worker) }}
  {{- include "ttsweb.container" . | nindent 2 }}
  command:
    - python
    - manage.py
    - models
    - pull
    - {{ $weights.model }}
    {{- with $weights.revision }}
    - --revision={{ . }}
    {{- end }}
    - --to=/data/models/{{ $weights.model }}
    - {{ required "weights.declaredUse: say research or written-licence" $weights.declaredUse | eq "research" | ternary "--yes-i-accept-the-research-licence" "--yes-i-have-a-written-licence" }}
    - {{ required "weights.declaredBy: name who declares the use of the weights" $weights.declaredBy | printf "--declared-by=%s" | quote }}
  env:
    - {name: TTS_DATA_DIR, value: /data}
    - {name: HF_HOME, value: /tmp/hub}
    {{- with $weights.hubSecret }}
    - name: HF_TOKEN
      valueFrom: {secretKeyRef: {name: {{ . }}, key: HF_TOKEN}}
    {{- end }}
  resources:
    requests: {cpu: 250m, memory: 512Mi}
    limits: {memory: 2Gi}
  volumeMounts:
    - {name: data, mountPath: /data}
    - {name: tmp, mountPath: /tmp}
    - {name: models, mountPath: /data/models}
{{- end -}}

{{- define "ttsweb.checkWeights" -}}
- name: check-weights
  image: {{ include "ttsweb.image" (dict "root" . "image" .Values.image.worker) }}
  {{- include "ttsweb.container" . | nindent 2 }}
  workingDir: /data/models/{{ .Values.weights.model }}
  command:
    - sh
    - -c
    - printf '%s' "$SUMS" | sha256sum --check --strict -
  env:
    - name: SUMS
      value: |
        {{- range $file, $digest := .Values.weights.sha256 }}
        {{ $digest }}  {{ $file }}
        {{- end }}
  resources:
    requests: {cpu: 250m, memory: 128Mi}
    limits: {memory: 512Mi}
  volumeMounts:
    - {name: models, mountPath: /data/models, readOnly: true}
{{- end -}}
